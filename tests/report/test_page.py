"""The page itself: complete, without requests, and unaffected by hostile texts and file names."""

from __future__ import annotations

import hashlib
import json
import re
from importlib import resources
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.commands import run

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


def test_the_charting_library_is_the_reviewed_release():
    data = resources.files("quire.report").joinpath("vendor/echarts.min.js").read_bytes()
    assert hashlib.sha256(data).hexdigest() == ECHARTS


def test_the_page_needs_no_network(page):
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


def test_an_empty_dataset_has_a_page(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": ""}\n')
    with pytest.warns(UserWarning, match="no row"):
        quire.pack_corpus([tmp_path / "a.jsonl"], tmp_path / "out", "byte", max_length=8)
    figures = write_report(tmp_path / "out", tmp_path / "r.html")
    assert figures["headline"]["rows"] == 0
    assert figures["headline"]["dropped_documents"] == 1


def test_a_page_is_written_even_if_sources_are_unknown(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "abc"}\n')
    quire.pack_corpus(
        [tmp_path / "a.jsonl"], tmp_path / "out", "byte", max_length=8, keep_sources=False
    )
    figures = write_report(tmp_path / "out", tmp_path / "r.html")
    assert figures["sources"] is None
    assert figures["headline"]["documents_cut"] is None
    assert figures["rows"] == [[{"start": 0, "length": 5}]]


def test_a_folder_that_is_not_a_packed_dataset_is_an_error(tmp_path):
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


@pytest.fixture
def small(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "abc"}\n{"text": "defg"}\n{"text": "hi"}\n')
    quire.pack_corpus([tmp_path / "a.jsonl"], tmp_path / "small", "byte", max_length=12, seed=42)
    return tmp_path / "small"


@pytest.mark.parametrize(
    ("column", "first", "message"),
    [
        ("document_starts", [0, -5], "negative value in document_starts: -5"),
        ("document_starts", [0, 10**6], "row 0: a document starts after the end of the row"),
        ("document_starts", [1], "row 0: document_starts do not begin with 0"),
        ("document_starts", [], "row 0 has no document_starts"),
        ("document_starts", None, "nulls, .* in document_starts"),
        ("document_starts", [0, None], "nulls, .* in document_starts"),
        ("document_starts", [0.5], "document_starts of type float64, which are not integers"),
        ("document_starts", "0", "not lists of numbers, in document_starts"),
        ("document_ids", [-1, -1], "negative value in document_ids: -1"),
        ("document_ids", [0], "a different number of document_ids than of document_starts"),
        ("document_offsets", [], "a different number of document_offsets than of document_starts"),
        ("input_ids", None, "nulls, .* in input_ids"),
        ("input_ids", [5] * 12, "has 2 rows with 16 tokens but the manifest says 2 and 15"),
    ],
)
def test_a_shard_without_valid_rows_is_an_error_and_gives_no_page(small, column, first, message):
    (shard,) = (small / "data").glob("*.parquet")
    table = pq.read_table(shard)
    values = table.column(column).to_pylist()
    assert len(values[0]) == 2 or column == "input_ids"
    others = [first] * (len(values) - 1) if isinstance(first, str) else values[1:]
    position = table.schema.get_field_index(column)
    pq.write_table(table.set_column(position, column, pa.array([first, *others])), shard)
    with pytest.raises(CorruptFile, match=message):
        write_report(small, small / "r.html")
    assert not (small / "r.html").exists()


def test_a_shard_that_lost_rows_is_an_error(small):
    (shard,) = (small / "data").glob("*.parquet")
    pq.write_table(pq.read_table(shard).slice(0, 1), shard)
    with pytest.raises(CorruptFile, match=r"has 1 row with .* but the manifest says 2 and"):
        write_report(small, small / "r.html")


def test_a_page_that_cannot_be_written_is_an_error_with_a_remedy(packed, tmp_path):
    with pytest.raises(OutputError, match="--out"):
        write_report(packed, tmp_path / "absent" / "r.html")


def test_the_command_prints_where_the_page_is(packed, tmp_path):
    done = run("report", packed, "-o", tmp_path / "r.html")
    assert done.returncode == 0, done.stderr
    assert f"report: {tmp_path / 'r.html'}" in done.stdout.replace("\n", "")
    assert (tmp_path / "r.html").stat().st_size > 1_000_000


def test_no_function_of_the_script_hides_a_name_of_the_whole_script():
    """A second `const` with the name of a helper breaks every use of the helper."""
    script = (Path(quire.report.__file__).parent / "charts.js").read_text()
    names = re.findall(r"^(?:const|let|function) (\w+)", script, re.MULTILINE)
    inner = re.findall(r"^ +(?:const|let|var) (\w+)", script, re.MULTILINE)
    assert "counted" in names
    assert set(names) & set(inner) == set()


def test_the_command_prints_all_figures_as_json(packed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = run("report", packed, "--json")
    assert done.returncode == 0, done.stderr
    written = write_report(packed, tmp_path / "page.html")
    assert json.loads(done.stdout) == json.loads(json.dumps(written))
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


@pytest.mark.parametrize("index_only", [False, True])
def test_trained_tokens_are_counted_by_fragment_and_source(tmp_path, index_only):
    rows = [
        {"input_ids": [7] * n, "labels": [-100] * (n - k) + [7] * k} for n, k in ((4, 4), (5, 0))
    ]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[:1]))
    more = [*rows, {"input_ids": [7] * 3, "labels": [-100, -100, 7]}]
    (tmp_path / "b.jsonl").write_text("".join(json.dumps(row) + "\n" for row in more[1:]))
    files = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    quire.pack_corpus(files, tmp_path / "out", max_length=8, index_only=index_only)
    figures = write_report(tmp_path / "out", tmp_path / "page.html")
    assert figures["trained"]["tokens"] == figures["ledger"]["tokens"]["trained"] == 4
    assert [source["trained"] for source in figures["sources"]] == [3, 1]
    counts = figures["trained"]["shares"]["counts"]
    assert (counts[6], counts[15], sum(counts)) == (1, 1, 2)
