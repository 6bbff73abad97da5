"""Make the pictures of the docs: `make pictures`. Needs chromium and chromedriver for the report.

The corpus is the standard library's own sources, so that the pictures show real documents.
"""

from __future__ import annotations

import base64
import json
import shutil
import sysconfig
import tempfile
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

import quire
from quire.report import write_report
from quire.view import DisplayOptions, open_rows, show_row

PICTURES = Path(__file__).resolve().parents[1] / "docs" / "pictures"
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars")


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        packed = _packed(Path(folder))
        _inspect(packed)
        _strategies()
        if shutil.which("chromedriver"):
            _report(packed, Path(folder) / "report.html")
        else:
            print("no chromedriver: the pictures of the report are left as they are")


def _packed(folder: Path) -> Path:
    sources = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    for part, files in (("a-to-l", sources[::2]), ("m-to-z", sources[1::2])):
        with (folder / f"{part}.jsonl").open("w") as out:
            out.writelines(json.dumps({"text": f.read_text("utf-8")}) + "\n" for f in files)
    inputs = sorted(folder.glob("*.jsonl"))
    quire.pack_corpus(inputs, folder / "standard library", "byte", max_length=32768)
    return folder / "standard library"


def _inspect(packed: Path) -> None:
    rows = open_rows(packed)
    row = max(rows.views(), key=lambda row: (3 <= len(row.starts) <= 4, -len(row.starts)))
    console = Console(record=True, width=100, file=StringIO(), force_terminal=True)
    for line in show_row(row, rows.decode, DisplayOptions(most=300)):
        console.print(line, soft_wrap=False)
    console.save_svg(str(PICTURES / "inspect.svg"), title="quire inspect")


def _strategies() -> None:
    """The same documents under three strategies, as a drawing."""
    lengths = np.array([13, 5, 9, 4, 11, 7, 3, 8, 6, 10, 2, 12])
    parts = []
    top = 0
    for strategy in ("greedy", "wrapped", "best_fit"):
        plan = quire.make_plan(lengths, max_length=16, strategy=strategy)
        parts.append(_drawing(plan, strategy, top))
        top += 34 + 22 * plan.num_rows
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 {top}" font-size="12" '
        f'font-family="sans-serif">{"".join(parts)}</svg>\n'
    )
    (PICTURES / "strategies.svg").write_text(svg)


def _drawing(plan: quire.Plan, strategy: str, top: int) -> str:
    title = f"{strategy}: {plan.num_rows} rows, {plan.utilization:.0%} full"
    parts = [f'<text x="4" y="{top + 16}" fill="#888">{title}</text>']
    for number, row in enumerate(plan):
        y, x = top + 24 + 22 * number, 4.0
        parts.append(f'<rect x="4" y="{y}" width="624" height="18" fill="#8884"/>')
        for fragment in row:
            width = 39.0 * (fragment.stop - fragment.start)
            hue = 360 * fragment.document // 12
            parts.append(
                f'<rect x="{x}" y="{y}" width="{width - 2}" height="18" rx="2" '
                f'fill="hsl({hue} 45% 55%)"/>'
                f'<text x="{x + 5}" y="{y + 13}" fill="#fff">{fragment.document}</text>'
            )
            x += width
    return "".join(parts)


def _report(packed: Path, page: Path) -> None:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    write_report(packed, page)
    options = webdriver.ChromeOptions()
    for flag in FLAGS:
        options.add_argument(flag)
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        for name, width, height, scheme in (
            ("report", 1180, 1180, "light"),
            ("report-dark", 1180, 1180, "dark"),
            ("report-phone", 390, 844, "light"),
        ):
            _shot(driver, page, PICTURES / f"{name}.png", (width, height), scheme)
    finally:
        driver.quit()


def _shot(driver: Any, page: Path, out: Path, size: tuple[int, int], scheme: str) -> None:
    width, height = size
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    feature = {"name": "prefers-color-scheme", "value": scheme}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    driver.get(page.as_uri())
    shot = driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})
    out.write_bytes(base64.b64decode(shot["data"]))


if __name__ == "__main__":
    main()
