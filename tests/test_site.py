"""The site is built without a warning: every page, link and name in the reference is there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.report.test_browser import FLAGS

ROOT = Path(__file__).resolve().parents[1]


def build(site: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    assert done.returncode == 0, done.stderr


def test_the_site_is_built_without_a_warning(tmp_path):
    build(tmp_path / "site")
    commands = (tmp_path / "site/reference/commands.html").read_text(encoding="utf-8")
    for name in (
        "pack",
        "plan",
        "inspect",
        "verify",
        "verify-model",
        "bench-model",
        "report",
        "export",
        "replan",
        "stream",
        "demo",
    ):
        assert f"quire {name}</code>" in commands
    planning = (tmp_path / "site/reference/planning.html").read_text(encoding="utf-8")
    assert "The plan that packs documents of these lengths" in planning
    options = (tmp_path / "site/reference/options.html").read_text(encoding="utf-8")
    for name in ("packing_mode", "buffer_size", "packing_min_fill_ratio", "vocab_size_multiple"):
        assert f"<code>{name}</code>" in options
    assert "<!-- options" not in options
    home = (tmp_path / "site/index.html").read_text(encoding="utf-8")
    assert 'src="scripts/iframe-worker.js"' in home
    assert "unpkg" not in home, "nothing is loaded from elsewhere"


@pytest.mark.slow
@pytest.mark.skipif(
    not (shutil.which("chromium") and shutil.which("chromedriver")),
    reason="needs chromium and chromedriver on the machine",
)
def test_search_works_in_pages_that_are_opened_from_the_disk(tmp_path):
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service
    from selenium.webdriver.support.ui import WebDriverWait

    build(tmp_path / "site")
    options = webdriver.ChromeOptions()
    for flag in FLAGS:
        options.add_argument(flag)
    service = Service(shutil.which("chromedriver"))
    driver = webdriver.Chrome(options=options, service=service)
    try:
        driver.get((tmp_path / "site/guides/stream.html").as_uri())
        driver.execute_script("document.querySelector('[for=__search]').click()")
        search = driver.find_element("css selector", "input.md-search__input")
        WebDriverWait(driver, 60).until(lambda _: search.is_displayed())
        search.send_keys("lower bound")
        found = WebDriverWait(driver, 60).until(
            lambda page: page.find_elements("css selector", ".md-search-result__item")
        )
        assert "lower_bound" in found[0].get_attribute("textContent")
    finally:
        driver.quit()
