"""Manifests are written whole; damaged and hand-edited ones raise an error that says where."""

from __future__ import annotations

import copy
import hashlib
import json

import pytest

import quire
from quire.corpus.manifest import write_json, write_manifest
from quire.errors import CorruptFile, StorageError
from quire.packed.manifest import read_json, read_manifest
from quire.storage import RemotePath, as_path

WRONG = [-1, 1.5, True, "x", None, [], {}, 10**30]


@pytest.fixture(scope="module", params=[False, True], ids=["rows", "index-only"])
def output(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("manifest")
    (folder / "a.jsonl").write_text('{"text": "abc"}\n')
    options = {"max_length": 8, "index_only": request.param}
    quire.pack_corpus([folder / "a.jsonl"], folder / "out", "byte", **options)
    return folder / "out"


def readers(manifest):
    """The fields that readers use, as paths into the manifest."""
    both = [("rows",), ("ledger",), ("format", "quire"), ("bad_records", "count")]
    both += [("options", "max_length"), ("options", "strategy"), ("inputs", 0, "name")]
    both += [("inputs",), ("shards", 0, "bytes"), ("format", "name")]
    own = [("shards", 0, "sha256"), ("shards", 0, "tokens")]
    if "plans" in manifest:
        entry = [("plans", 0, "name"), ("plans", 0, "ledger"), ("plans", 0, "options")]
        return [*both, *own, *entry, ("plans", 0, "options", "max_length"), ("documents",)]
    return [*both, *own, ("shards", 0, "rows")]


def changed(manifest, steps, value):
    other = copy.deepcopy(manifest)
    other.pop("checksum", None)  # so that the field itself is noticed
    *way, last = steps
    node = other
    for step in way:
        node = node[step]
    if value is ...:
        del node[last]
    else:
        node[last] = value
    return other


def test_fields_that_readers_use_must_exist_and_have_the_right_kind(output):
    file = output / "manifest.json"
    good = json.loads(file.read_text())
    tried = 0
    try:
        for steps in readers(good):
            kind = type(_at(good, steps))
            for wrong in [..., *(value for value in WRONG if type(value) is not kind)]:
                file.write_text(json.dumps(changed(good, steps, wrong)))
                with pytest.raises(CorruptFile, match=r"manifest\.json: .* is damaged"):
                    read_manifest(output)
                tried += 1
    finally:
        file.write_text(json.dumps(good))
    assert tried > 60
    assert read_manifest(output) == good


@pytest.mark.parametrize("steps", [("shards",), ("tokenizer",), ("plans",)])
def test_empty_lists_and_a_tokenizer_that_is_not_a_mapping_are_damage(output, steps):
    file = output / "manifest.json"
    good = json.loads(file.read_text())
    file.write_text(json.dumps(changed(good, steps, [])))
    try:
        if steps == ("plans",) and "plans" not in good:
            assert read_manifest(output)["plans"] == []
            return
        with pytest.raises(CorruptFile, match="is damaged"):
            read_manifest(output)
    finally:
        file.write_text(json.dumps(good))


def test_the_message_names_the_field_and_both_values(output):
    file = output / "manifest.json"
    good = json.loads(file.read_text())
    file.write_text(json.dumps(changed(good, ("options", "max_length"), 0)))
    try:
        said = r"options\.max_length is 0 but must be an integer >= 1; it is damaged"
        with pytest.raises(CorruptFile, match=said):
            read_manifest(output)
    finally:
        file.write_text(json.dumps(good))


def _at(manifest, steps):
    for step in steps:
        manifest = manifest[step]
    return manifest


def test_a_manifest_is_written_with_the_checksum_of_its_content(tmp_path):
    written = write_manifest(tmp_path / "a.json", {"rows": 1, "checksum": "of an earlier one"})
    digest = hashlib.sha256(b'{"rows":1}').hexdigest()
    assert written == {"rows": 1, "checksum": digest}
    assert json.loads((tmp_path / "a.json").read_text()) == written


def test_json_is_written_whole_with_sorted_keys_and_read_back(tmp_path):
    write_json(tmp_path / "a.json", {"b": 1, "a": {"é": [1]}})
    assert (tmp_path / "a.json").read_bytes() == (
        b'{\n "a": {\n  "\\u00e9": [\n   1\n  ]\n },\n "b": 1\n}\n'
    )
    assert read_json(tmp_path / "a.json") == {"b": 1, "a": {"é": [1]}}


@pytest.mark.parametrize("content", [b"{", b"\xff", b"[" * 100_000])
def test_invalid_json_is_a_corrupt_file(tmp_path, content):
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(CorruptFile) as raised:
        read_json(tmp_path / "a.json")
    assert str(raised.value).startswith(f"{tmp_path / 'a.json'} cannot be read: ")


def test_a_missing_file_and_json_that_is_not_an_object_are_named(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps([1]))
    with pytest.raises(CorruptFile) as raised:
        read_json(tmp_path / "a.json")
    assert str(raised.value) == f"{tmp_path / 'a.json'} holds a list, not an object"
    with pytest.raises(CorruptFile, match=r"cannot be read: .*No such file"):
        read_json(tmp_path / "none.json")


def test_a_store_that_fails_is_not_taken_for_a_corrupt_file(monkeypatch):
    path = as_path("memory://manifests/a.json")

    def fail(*_, **__):
        raise StorageError("the store cannot be reached")

    monkeypatch.setattr(RemotePath, "read_text", fail)
    with pytest.raises(StorageError, match="the store cannot be reached"):
        read_json(path)
