"""The page in a real browser: no error, every chart drawn, on a laptop and on a phone."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import quire
from quire.report import write_report
from quire.vision import PackedVLDataset

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="needs chromium and chromedriver on the machine"
)
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def page(packed: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("page") / "report.html"
    write_report(packed, file)
    return file.as_uri()


def opened(browser: Any, page: str, width: int, scheme: str) -> None:
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600},
    )
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia",
        {"features": [{"name": "prefers-color-scheme", "value": scheme}]},
    )
    browser.get(page)


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_chart_is_drawn_without_an_error(browser, page, width, scheme):
    opened(browser, page, width, scheme)
    assert browser.get_log("browser") == []
    assert browser.execute_script("return document.body.dataset.charts") == "8"
    painted = browser.execute_script(
        """return [...document.querySelectorAll('.chart canvas')].map(canvas => {
             const { width, height } = canvas;
             const data = canvas.getContext('2d').getImageData(0, 0, width, height).data;
             const seen = new Set();
             for (let i = 0; i < data.length; i += 40) seen.add(data.slice(i, i + 3).join());
             return seen.size; })"""
    )
    assert len(painted) == 8
    assert min(painted) > 2, "a chart is more than its background"
    # Not innerWidth: a phone zooms out to what sticks out, and says that it is wider.
    overflow = browser.execute_script(
        "return document.body.scrollWidth - document.documentElement.clientWidth"
    )
    assert overflow <= 0, "nothing sticks out on the right"


def test_hostile_text_and_names_stay_text(browser, page):
    opened(browser, page, 1280, "light")
    assert browser.title.startswith("packed")
    assert browser.execute_script("return document.querySelectorAll('img, td b').length") == 0
    cells = browser.execute_script(
        "return [...document.querySelectorAll('#sources td')].map(cell => cell.textContent)"
    )
    assert "<b>a.jsonl" in cells


def small_page(folder: Path, name: str, texts: list[str], **options: Any) -> str:
    (folder / name).write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    quire.pack_corpus([folder / name], folder / "packed", "byte", max_length=16, **options)
    write_report(folder / "packed", folder / "report.html")
    return (folder / "report.html").as_uri()


@pytest.mark.parametrize("width", [1280, 390])
def test_many_sources_have_a_line_each(browser, tmp_path, width):
    for number in range(24):
        (tmp_path / f"source-{number}.jsonl").write_text(json.dumps({"text": "some words"}) + "\n")
    files = sorted(tmp_path.glob("*.jsonl"))
    quire.pack_corpus(files, tmp_path / "packed", "byte", max_length=16)
    write_report(tmp_path / "packed", tmp_path / "report.html")
    opened(browser, (tmp_path / "report.html").as_uri(), width, "light")
    height = browser.execute_script(
        "return document.querySelector('#chart-sources canvas').clientHeight"
    )
    assert height >= 20 * 18, "20 names, one above the other"
    assert browser.execute_script(
        "return document.getElementById('sources-card').classList.contains('wide')"
    )


def test_a_long_name_does_not_widen_a_phones_page(browser, tmp_path):
    page = small_page(tmp_path, f"{'long' * 40}.jsonl", ["some words"] * 5)
    opened(browser, page, 390, "light")
    overflow = browser.execute_script(
        "return document.body.scrollWidth - document.documentElement.clientWidth"
    )
    assert overflow <= 0, "nothing sticks out on the right"


def test_one_source_has_no_chart_and_the_wheel_scrolls_the_page(browser, tmp_path):
    page = small_page(tmp_path, "a.jsonl", ["some words " * 5] * 40)
    opened(browser, page, 1280, "light")
    assert browser.execute_script("return document.body.dataset.charts") == "7"
    wheeled = """const chart = document.querySelector('#chart-rows canvas');
      const { left, top } = chart.getBoundingClientRect();
      const wheel = new WheelEvent('wheel', { deltaY: 90, ctrlKey: arguments[0], bubbles: true,
        cancelable: true, clientX: left + 300, clientY: top + 60 });
      chart.dispatchEvent(wheel);
      return wheel.defaultPrevented"""
    assert browser.execute_script(wheeled, False) is False
    assert browser.execute_script(wheeled, True) is True


def test_counts_of_one_are_visible_on_a_log_scale(browser, page):
    opened(browser, page, 1280, "light")
    heights = browser.execute_script(
        """const chart = echarts.getInstanceByDom(document.getElementById('chart-fill'));
           const counts = chart.getOption().series[0].data;
           const place = (n) => chart.convertToPixel({ yAxisIndex: 0 }, n);
           return [counts.includes(1), place(0.5) - place(1)]"""
    )
    assert heights[0], "the corpus has a bar of one row"
    assert heights[1] > 5


def test_a_phone_gets_a_list_of_bars_instead_of_a_flow(browser, page):
    kind = """return echarts.getInstanceByDom(document.getElementById('chart-ledger'))
      .getOption().series[0].type"""
    opened(browser, page, 1280, "light")
    assert browser.execute_script(kind) == "sankey"
    opened(browser, page, 390, "light")
    assert browser.execute_script(kind) == "bar"


def test_labels_have_a_chart_and_a_share_per_source(browser, tmp_path):
    for name, trained in (("a.jsonl", 3), ("b.jsonl", 1)):
        row = {"input_ids": [9] * 5, "labels": [-100] * (5 - trained) + [9] * trained}
        (tmp_path / name).write_text(f"{json.dumps(row)}\n" * 8)
    files = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    quire.pack_corpus(files, tmp_path / "packed", max_length=16)
    write_report(tmp_path / "packed", tmp_path / "report.html")
    opened(browser, (tmp_path / "report.html").as_uri(), 1280, "light")
    assert browser.get_log("browser") == []
    assert browser.execute_script("return document.body.dataset.charts") == "8", "not the balance"
    cells = browser.execute_script(
        "return [...document.querySelectorAll('#sources td')].map(cell => cell.textContent)"
    )
    assert cells[4:6] == ["24", "60.00 %"]
    assert cells[10:12] == ["8", "20.00 %"]


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("limits", [{}, {"packing_max_images": 2}])
def test_packs_of_samples_have_a_page(browser, tmp_path, width, limits):
    samples = [
        {"length": 3 + n % 7, "image_grid_thw": np.array([[1, 2, 2]] * (n % 3)).reshape(-1, 3)}
        for n in range(60)
    ]
    packed = PackedVLDataset(samples, packing_length=16, **limits)
    figures = write_report(packed, tmp_path / "report.html")
    opened(browser, (tmp_path / "report.html").as_uri(), width, "light")
    assert browser.get_log("browser") == []
    drawn = browser.execute_script("return document.body.dataset.charts")
    assert drawn == ("9" if limits else "7"), "no chart of sources; budgets only if several"
    overflow = browser.execute_script(
        "return document.body.scrollWidth - document.documentElement.clientWidth"
    )
    assert overflow <= 0
    shown = browser.execute_script(
        "return [...document.querySelectorAll('#budgets tr')].map(line => line.textContent)"
    )
    assert shown[0] == "budgettokensimagespatchessamples"
    assert shown[6] == "packs where it binds" + "".join(
        f"{budget.get('binds', '')}" for budget in figures["budgets"]
    )


@pytest.mark.filterwarnings("ignore:.*no row")
def test_a_dataset_without_rows_shows_only_that(browser, tmp_path):
    page = small_page(tmp_path, "a.jsonl", ["longer than a row " * 9], overlong="drop")
    opened(browser, page, 1280, "light")
    assert browser.get_log("browser") == []
    for note in ("lengths", "fill", "attention", "sources"):
        said = browser.execute_script(f"return document.getElementById('{note}-note').textContent")
        assert said == "There are no rows."


def test_the_headline_is_readable(browser, page):
    opened(browser, page, 1280, "light")
    tiles = browser.execute_script(
        "return [...document.querySelectorAll('.tile')].map(tile => tile.textContent)"
    )
    assert len(tiles) == 8
    assert "%" in tiles[0]


def test_a_broken_script_would_fail_these_tests(browser, page, tmp_path):
    from urllib.parse import urlparse
    from urllib.request import url2pathname

    text = Path(url2pathname(urlparse(page).path)).read_text()
    broken = tmp_path / "broken.html"
    broken.write_text(text.replace("showHeadline();\n", "showHeadlines();\n"))
    opened(browser, broken.as_uri(), 1280, "light")
    assert browser.get_log("browser") != [], "the policy refuses a script that is not ours"
