"""The page itself: whole, silent, and deaf to what documents and file names say."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest

import quire
from quire.errors import CorruptFile, InvalidOption, OutputError
from quire.report import write_report

ECHARTS = "b66b25aeb4df84e33199dc21694014d336d222cbd9deb0e5a7c14bd6aa0d0fd0"


@pytest.fixture(scope="module")
def page(packed: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("page") / "report.html"
    write_report(packed, file)
    return file.read_text()


def own_part(page: str) -> str:
    """The page without the charting library."""
    library = resources.files("quire.report").joinpath("vendor/echarts.min.js").read_text()
    assert library in page
    return page.replace(library, "")


def test_the_charting_library_is_the_release_that_was_looked_at():
    data = resources.files("quire.report").joinpath("vendor/echarts.min.js").read_bytes()
    assert hashlib.sha256(data).hexdigest() == ECHARTS


def test_the_page_asks_no_network_for_anything(page):
    own = own_part(page)
    assert not re.findall(r"(?:src|href)\s*=", own)
    assert "http:" not in own
    assert "https:" not in own
    assert "default-src 'none'" in own


def test_fault_56_hostile_text_cannot_close_its_element(page):
    own = own_part(page)
    assert own.count("<script") == 3, "data, library, charts"
    assert "<img" not in own
    assert "<b>a.jsonl" not in own
    data = re.search(r'id="figures">(.*?)</script>', own, re.DOTALL)
    figures = json.loads(data.group(1))
    assert figures["sources"][0]["name"] == "<b>a.jsonl", "the name is there, as data"


def test_the_same_dataset_gives_the_same_page(packed, page, tmp_path):
    write_report(packed, tmp_path / "again.html")
    assert (tmp_path / "again.html").read_text() == page


def test_an_empty_dataset_has_a_page_too(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": ""}\n')
    with pytest.warns(UserWarning, match="no row"):
        quire.pack_corpus([tmp_path / "a.jsonl"], tmp_path / "out", "byte", max_length=8)
    figures = write_report(tmp_path / "out", tmp_path / "r.html")
    assert figures["headline"]["rows"] == 0
    assert figures["headline"]["dropped_documents"] == 1


def test_without_source_ids_the_mix_is_unknown_and_the_page_is_written(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "abc"}\n')
    quire.pack_corpus(
        [tmp_path / "a.jsonl"], tmp_path / "out", "byte", max_length=8, keep_source=False
    )
    figures = write_report(tmp_path / "out", tmp_path / "r.html")
    assert figures["sources"] is None
    assert figures["headline"]["documents_cut"] is None
    assert figures["rows"] == [[{"start": 0, "length": 5}]]


def test_a_folder_that_is_no_packed_dataset_is_an_error(tmp_path):
    with pytest.raises(InvalidOption, match=r"no manifest\.json"):
        write_report(tmp_path, tmp_path / "r.html")


def test_a_missing_shard_is_named(packed, tmp_path):
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(packed, copy)
    shard = json.loads((copy / "manifest.json").read_text())["shards"][1]["file"]
    (copy / shard).unlink()
    with pytest.raises(CorruptFile, match=Path(shard).name):
        write_report(copy, tmp_path / "r.html")


def test_a_page_that_cannot_be_written_is_an_error_with_the_remedy(packed, tmp_path):
    with pytest.raises(OutputError, match="--out"):
        write_report(packed, tmp_path / "absent" / "r.html")


def test_the_command_prints_where_the_page_is(packed, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "quire", "report", str(packed), "-o", str(tmp_path / "r.html")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert f"the page: {tmp_path / 'r.html'}" in done.stdout.replace("\n", "")
    assert (tmp_path / "r.html").stat().st_size > 1_000_000
