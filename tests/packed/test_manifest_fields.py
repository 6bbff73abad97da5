"""A manifest that was changed by hand is an error in a sentence, whatever was done to it."""

from __future__ import annotations

import copy
import json

import pytest

import quire
from quire.errors import CorruptFile
from quire.packed.manifest import read_manifest

WRONG = [-1, 1.5, True, "x", None, [], {}, 10**30]


@pytest.fixture(scope="module", params=[False, True], ids=["rows", "index-only"])
def output(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("manifest")
    (folder / "a.jsonl").write_text('{"text": "abc"}\n')
    options = {"max_length": 8, "index_only": request.param}
    quire.pack_corpus([folder / "a.jsonl"], folder / "out", "byte", **options)
    return folder / "out"


def readers(manifest):
    """Where readers look, as steps into the manifest."""
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
    other.pop("checksum", None)  # or it would be the one to tell
    *way, last = steps
    node = other
    for step in way:
        node = node[step]
    if value is ...:
        del node[last]
    else:
        node[last] = value
    return other


def test_what_readers_take_must_be_there_and_of_its_kind(output):
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
def test_lists_hold_something_and_the_tokenizer_is_described(output, steps):
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
