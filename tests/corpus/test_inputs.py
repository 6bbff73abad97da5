"""Files, globs, folders and saved datasets, in an order that does not depend on the file system."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from quire.corpus.inputs import find_inputs
from quire.errors import CorruptFile, InvalidDocument, InvalidOption, SourceChanged
from quire.verify.inputs import verify_inputs
from quire.verify.output import verify_output
from tests.corpus.corpora import jsonl, pack


def names(*named) -> list[str]:
    return [file.name for file in find_inputs(list(named))]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b.jsonl", "a.txt", "sub/c.jsonl", ".hidden.txt", "_x/d.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    return tmp_path


def test_a_folder_gives_its_known_files_sorted_by_name(folder):
    assert names(folder) == ["a.txt", "b.jsonl", "sub/c.jsonl"]


def test_arguments_keep_their_order(folder):
    assert names(folder / "b.jsonl", folder / "a.txt") == ["b.jsonl", "a.txt"]


def test_a_glob_is_sorted_and_named_from_its_root(folder):
    assert names(f"{folder}/**/*.jsonl") == ["b.jsonl", "sub/c.jsonl"]


def test_names_do_not_depend_on_the_location_of_the_corpus(folder, monkeypatch):
    monkeypatch.chdir(folder)
    assert names(".") == names(folder)
    assert names("*.jsonl") == ["b.jsonl"]


def test_a_saved_dataset_is_read_in_the_order_of_its_rows(tmp_path):
    datasets = pytest.importorskip("datasets")
    saved = datasets.Dataset.from_dict({"text": [str(i) for i in range(30)]})
    saved.save_to_disk(tmp_path / "saved", num_shards=3)
    files = find_inputs([tmp_path / "saved"])
    assert [file.kind for file in files] == ["arrow"] * 3
    state = json.loads((tmp_path / "saved" / "state.json").read_text())
    assert [file.name for file in files] == [f["filename"] for f in state["_data_files"]]


def test_a_saved_dataset_may_not_name_files_elsewhere(tmp_path):
    (tmp_path / "dataset_info.json").write_text("{}")
    (tmp_path / "state.json").write_text('{"_data_files": [{"filename": "../secret.arrow"}]}')
    with pytest.raises(CorruptFile, match=r"'../secret.arrow', which is not a file beside it"):
        find_inputs([tmp_path])


def test_splits_of_a_dataset_are_named_one_at_a_time(tmp_path):
    (tmp_path / "dataset_dict.json").write_text("{}")
    with pytest.raises(InvalidOption, match="name the folder of one"):
        find_inputs([tmp_path])


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ("nowhere.jsonl", "there is no file or folder .*nowhere.jsonl"),
        ("*.nothing", "no file matches"),
        ("notes.rst", "has a suffix of no known format; known are .jsonl"),
    ],
)
def test_an_argument_that_matches_no_file_is_an_error(folder, named, message):
    (folder / "notes.rst").write_text("")
    with pytest.raises(InvalidOption, match=message):
        find_inputs([f"{folder}/{named}"])


def test_a_single_path_is_not_a_list_of_inputs(folder):
    with pytest.raises(InvalidOption, match="must be a list of paths"):
        find_inputs(str(folder))


def test_a_folder_without_known_files_is_an_error(tmp_path):
    with pytest.raises(InvalidOption, match="holds no file that ends with"):
        find_inputs([tmp_path])


def test_source_and_markdown_are_texts_where_they_are_named(folder, tmp_path_factory):
    """In a folder they describe the data, or made it, so a pattern must name them."""
    (folder / "README.md").write_text("about")
    (folder / "make.py").write_text("code")
    with pytest.warns(UserWarning, match=r"README\.md, make\.py"):
        assert not {"README.md", "make.py"} & {file.name for file in find_inputs([folder])}
    found = find_inputs([folder / "README.md", f"{folder}/*.py"])
    assert [(file.name, file.kind) for file in found] == [("README.md", "txt"), ("make.py", "txt")]
    alone = tmp_path_factory.mktemp("alone")
    (alone / "make.py").write_text("code")
    with pytest.raises(InvalidOption, match=r"/\*\*/\*\.py' names its other files"):
        find_inputs([alone])


def test_a_link_to_a_folder_is_never_skipped_silently(folder, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (folder / "more").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InvalidOption, match="more is a link to a folder, which is not followed"):
        find_inputs([folder])
    (folder / "more").rename(folder / ".more")
    assert find_inputs([folder])


def test_the_fingerprint_is_of_the_content_not_of_time_or_place(tmp_path):
    one, other = tmp_path / "one.txt", tmp_path / "other.txt"
    for path, data in ((one, b"a" * (3 << 20)), (other, b"a" * (3 << 20))):
        path.write_bytes(data)
    os.utime(other, (1, 1))
    first, second = find_inputs([one, other])
    assert first.fingerprint == second.fingerprint
    other.write_bytes(b"b" + b"a" * ((3 << 20) - 1))
    assert find_inputs([other])[0].fingerprint != first.fingerprint


def test_a_file_that_grew_is_detected_when_it_is_opened(tmp_path):
    (file,) = find_inputs([jsonl(tmp_path / "a.jsonl", ["x"])])
    jsonl(tmp_path / "a.jsonl", ["x", "y"])
    with pytest.raises(SourceChanged, match="it had 14 bytes and now has 28"):
        file.open()


def test_files_that_a_glob_finds_in_the_output_are_not_inputs(folder):
    (folder / "sub/b.jsonl").write_text("")
    both = f"{folder}/**/*.jsonl"
    assert [file.name for file in find_inputs([both], folder / "sub")] == ["b.jsonl"]
    with pytest.raises(InvalidOption, match="no file matches"):
        find_inputs([f"{folder}/sub/*.jsonl"], folder / "sub")


def test_a_name_that_no_file_can_have_is_refused():
    with pytest.raises(InvalidOption, match=r"x{300} cannot be looked up: File name too long"):
        find_inputs(["x" * 300])


@pytest.mark.parametrize("wrong", [None, 5])
def test_an_argument_that_is_not_a_list_of_paths_is_refused(wrong):
    with pytest.raises(InvalidOption, match=f"inputs is {wrong} but must be a list of paths"):
        find_inputs(wrong)
    with pytest.raises(InvalidOption, match=f"{wrong} is not a path: give a string"):
        find_inputs([wrong])


def test_files_of_a_folder_that_are_not_read_give_a_warning(folder):
    for name in ("sub/notes.md", "d.json", "e.csv", "f"):
        (folder / name).write_text("")
    with pytest.warns(UserWarning, match=r"4 of 7 files left unread \(d\.json, e\.csv, f\);"):
        assert names(folder) == ["a.txt", "b.jsonl", "sub/c.jsonl"]


@pytest.mark.parametrize("ending", ["ndjson", "ndjson.gz", "json.gz", "json.zst", "JSONL"])
def test_jsonl_files_are_known_by_several_suffixes(tmp_path, ending):
    (tmp_path / f"a.{ending}").write_bytes(b"")
    (found,) = find_inputs([tmp_path])
    assert found.kind.startswith("jsonl")


def test_a_json_file_given_by_name_is_read_as_lines(tmp_path):
    """Like .json.gz; in a folder it is ignored, because there it may describe the data."""
    path = jsonl(tmp_path / "a.json", ["abc", "de"])
    assert pack(path, tmp_path / "out").ledger.documents.emitted == 2
    assert names(f"{tmp_path}/*.json") == ["a.json"]
    (tmp_path / "b.json").write_text('[{"text": "abc"}]')
    with pytest.raises(
        InvalidDocument, match=r"b\.json: record 0 .* is a JSON array, not an object"
    ):
        pack(tmp_path / "b.json", tmp_path / "other")


@pytest.fixture
def twins(tmp_path):
    """Files of the same name in different folders."""
    for folder in ("x", "y/z"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "a.jsonl").write_text(f'{{"text": "{folder}"}}\n{{\n')
    return tmp_path


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        (["x/a.jsonl", "y/z/a.jsonl"], ["x/a.jsonl", "y/z/a.jsonl"]),
        (["y/z", "x"], ["y/z/a.jsonl", "x/a.jsonl"]),
        (["x/*.jsonl", "y/**/*.jsonl"], ["a.jsonl", "z/a.jsonl"]),
        (["x/a.jsonl", "y"], ["a.jsonl", "z/a.jsonl"]),
    ],
)
def test_files_of_the_same_name_are_distinguished_by_their_folders(
    twins, monkeypatch, named, expected
):
    assert names(*(f"{twins}/{one}" for one in named)) == expected
    monkeypatch.chdir(twins / "x")
    assert names(*(f"../{one}" for one in named)) == expected


def test_manifest_bad_records_and_verify_distinguish_files_of_the_same_name(twins, monkeypatch):
    inputs, out = [twins / "x/a.jsonl", twins / "y/z/a.jsonl"], twins / "out"
    manifest = pack(inputs, out, max_bad_records=2).manifest
    assert [entry["name"] for entry in manifest["inputs"]] == ["x/a.jsonl", "y/z/a.jsonl"]
    bad = [json.loads(line) for line in (out / "bad_records.jsonl").read_text().splitlines()]
    assert [record["file"] for record in bad] == ["x/a.jsonl", "y/z/a.jsonl"]
    monkeypatch.chdir(twins / "x")
    for given in ([*reversed(inputs)], ["a.jsonl", "../y/z/a.jsonl"], [twins / "y", twins / "x"]):
        report = verify_output(out)
        verify_inputs(report, given, "byte")
        assert report.ok and report.compared == 2, given
