"""A state continues with the same files, however they are named, and refuses others."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from quire.errors import InvalidState, SourceChanged
from quire.stream import Stream, open_stream
from tests.sealing import resealed
from tests.stream.inputs import (
    Numbers,
    config,
    same,
    shards_of,
    take,
    unique_documents,
    write_jsonl,
)

SHARDS = shards_of(unique_documents([5, 3, 9, 14, 2, 6, 30, 4, 7, 12, 8, 1, 9]), 3)
PATTERN = "part-*.jsonl"
STEPS = 12


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    folder = tmp_path / "corpus"
    folder.mkdir()
    write_jsonl(folder, SHARDS)
    monkeypatch.chdir(folder)
    return folder


def opened(*files, mixed=False, **options) -> Stream:
    named = {"backend": "files", "files": list(map(str, files))}
    data = {"sources": [named, {**named, "weight": 2.0}]} if mixed else named
    plain = config(shuffle_buffer_size=4, packing_mode="bin", packing_buffer_docs=3, **data)
    plain["data"] |= options
    return open_stream(plain, tokenizer=Numbers())


def states_of(stream):
    """The batches of a stream, and the state before each of them in JSON."""
    batches, states = [], []
    for _ in range(STEPS):
        states.append(json.dumps(stream.get_state()))
        batches += take(stream, 1)
    return batches, states


def state_of(stream, steps=3):
    with stream:
        take(stream, steps)
        return json.loads(json.dumps(stream.get_state()))


def spellings(folder: Path) -> dict[str, list[object]]:
    return {
        "from here": ["./part-*.jsonl"],
        "absolute": [folder / PATTERN],
        "by the folder above": [Path("..") / folder.name / PATTERN],
        "one by one": ["part-0.jsonl", "part-1.jsonl", "part-2.jsonl"],
        "another pattern": ["part-[0-2].jsonl"],
        "two patterns": ["*-0.jsonl", "part-[12].*"],
        "recursive": ["**/part-*.jsonl"],
    }


@pytest.mark.parametrize("mixed", [False, True], ids=["one source", "a mixture"])
@pytest.mark.parametrize("shuffle", [False, True])
def test_a_stream_resumes_exactly_however_its_files_are_named(folder, shuffle, mixed):
    with opened(PATTERN, shuffle=shuffle, mixed=mixed) as stream:
        batches, states = states_of(stream)
    for files in spellings(folder).values():
        for step in range(0, STEPS, 3):
            with opened(*files, shuffle=shuffle, mixed=mixed) as stream:
                stream.set_state(json.loads(states[step]))
                assert same(take(stream, 3), batches[step : step + 3])


def test_a_stream_resumes_exactly_from_moved_or_linked_files(folder, tmp_path, monkeypatch):
    with opened(folder / PATTERN) as stream:
        batches, states = states_of(stream)
    (tmp_path / "link").symlink_to(folder)
    shutil.copytree(folder, tmp_path / "copy")
    monkeypatch.chdir(tmp_path)
    for name in ("link", "copy"):
        with opened(f"{name}/{PATTERN}") as stream:
            stream.set_state(json.loads(states[5]))
            assert same(take(stream, 3), batches[5:8])


def other_text(folder: Path) -> None:
    """Another text of the same size, in every file."""
    for path in folder.glob(PATTERN):
        path.write_text(path.read_text().translate(str.maketrans("123", "321")))


def grown(folder: Path) -> None:
    path = folder / "part-1.jsonl"
    path.write_text(path.read_text() + "\n")


@pytest.mark.parametrize(
    ("change", "files"),
    [
        (lambda _: None, ["part-0.jsonl", "part-1.jsonl"]),
        (lambda _: None, ["part-1.jsonl", "part-0.jsonl", "part-2.jsonl"]),
        (lambda folder: (folder / "part-3.jsonl").write_text('{"text": "9"}\n'), [PATTERN]),
        (grown, [PATTERN]),
        (lambda folder: (folder / "part-1.jsonl").rename("part-1b.jsonl"), [PATTERN]),
        (other_text, [PATTERN]),
    ],
    ids=["fewer", "another order", "one more", "one grew", "another name", "another text"],
)
@pytest.mark.parametrize("shuffle", [False, True])
def test_different_files_are_refused_under_any_name(folder, change, files, shuffle):
    state = state_of(opened(PATTERN, shuffle=shuffle))
    change(folder)
    for named in (files, [folder / name for name in files]):
        with opened(*named, shuffle=shuffle) as stream, pytest.raises(SourceChanged):
            stream.set_state(state)


def test_different_files_with_the_same_names_and_sizes_are_refused(folder, tmp_path):
    state = state_of(opened(PATTERN))
    other = shutil.copytree(folder, tmp_path / "other")
    other_text(other)
    with (
        opened(other / PATTERN) as stream,
        pytest.raises(SourceChanged, match="were read again and they differ"),
    ):
        stream.set_state(state)


def test_a_stream_that_refused_a_state_still_delivers_its_own_batches(folder):
    state = state_of(opened(PATTERN))
    with opened("part-0.jsonl") as stream, opened("part-0.jsonl") as plain:
        with pytest.raises(SourceChanged, match=r"other shards than .*use the same files"):
            stream.set_state(state)
        assert same(take(stream, 4), take(plain, 4))


@pytest.mark.parametrize(("name", "value"), [("text_key", "body"), ("backend", "local_text")])
def test_other_options_that_name_a_source_must_match_the_state(folder, name, value):
    state = state_of(opened(PATTERN))
    forged = resealed({**state, "options": {**state["options"], f"data.{name}": value}})
    with opened(PATTERN) as stream, pytest.raises(InvalidState, match=rf"data\.{name} \(saved"):
        stream.set_state(forged)


def test_the_files_of_datasets_must_match_the_state(folder):
    """Its shards are named by numbers, which say nothing about the files."""
    data = {"backend": "hf", "hf_dataset": "json", "repeat": False}

    def hub(pattern):
        return open_stream(config(**data, hf_data_files=[pattern]), tokenizer=Numbers())

    state = state_of(hub(str(folder / PATTERN)), steps=1)
    with (
        hub(str(folder / "part-0.jsonl")) as stream,
        pytest.raises(InvalidState, match=r"data\.hf_data_files \(saved"),
    ):
        stream.set_state(state)


def test_a_state_without_file_patterns_is_readable(folder):
    """The files decide; the patterns are recorded for people who read the state."""
    state = state_of(opened(PATTERN))
    assert state["options"]["files"] == [PATTERN]
    options = {name: value for name, value in state["options"].items() if name != "files"}
    with opened(PATTERN) as stream:
        stream.set_state(resealed({**state, "options": options}))
