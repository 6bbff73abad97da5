"""States that were saved by every version before this one still continue to the same batches."""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from quire.ledger import Ledger, Tally, TokenTally
from quire.stream import load_state, open_stream, save_state
from quire.stream.state import opened as opened_state
from quire.stream.state import sealed, tokens_to_json
from tests.sealing import resealed
from tests.stream.inputs import (
    LENGTHS,
    ListSource,
    Numbers,
    config,
    key,
    shards_of,
    take,
    unique_documents,
)

FOLDER = Path(__file__).parent / "golden_states"
MODES = ["sequential", "bin", "online"]
EOS_ALONE = [8, 3, 17, 5, 8, 26, 2, 8, 11, 17, 4, 8]
"""Lengths that, with BOS and EOS, are a multiple of a window and one token more."""


def opened(name):
    """The stream of a golden state; ``-eos``: most documents end with EOS in a window of its own,
    as long as nothing takes care of it."""
    mode, _, eos = name.partition("-")
    plain = {"packing_mode": mode, "packing_buffer_docs": 6, "shuffle_buffer_size": 5, "seed": 7}
    if eos:
        source = ListSource(shards_of(unique_documents(EOS_ALONE * 2), 3))
        return open_stream(config(seq_len=8, **plain), source=source, tokenizer=Numbers())
    options = config(seq_len=16, **plain, tokenizer={"kind": "byte"})
    return open_stream(options, source=ListSource(shards_of(unique_documents(LENGTHS), 3)))


def digest_of_next(stream):
    batches = [key(batch) for batch in take(stream, 12)]
    return hashlib.sha256(repr(batches).encode()).hexdigest()


NAMES = [*MODES, "bin-eos", "online-eos"]
EXPECTED = json.loads((FOLDER / "expected.json").read_text())


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("name", NAMES)
def test_a_state_of_every_version_resumes_to_the_batches_of_that_version(name, version, tmp_path):
    """Fault 29: an older state is read as before, and saved in the current form."""
    state = load_state(FOLDER / f"{version}-{name}.json")
    save_state(state, tmp_path / "state.json")
    assert load_state(tmp_path / "state.json") == state
    with opened(name) as stream:
        stream.set_state(state)
        assert stream.get_state() == state
        assert digest_of_next(stream) == EXPECTED[f"{version}-{name}"]


@pytest.mark.parametrize("name", NAMES)
def test_a_current_state_equals_the_golden_one_byte_for_byte(name, tmp_path):
    with opened(name) as stream:
        take(stream, 9)
        save_state(stream.get_state(), tmp_path / "state.json")
    save_state(load_state(FOLDER / f"2-{name}.json"), tmp_path / "golden.json")
    assert (tmp_path / "state.json").read_bytes() == (tmp_path / "golden.json").read_bytes()


def test_the_ledger_balances_after_a_state_with_eos_at_a_cut():
    """Version 2 does not distinguish this EOS, which a text contains, from an added one."""
    state = json.loads((FOLDER / "2-online.json").read_text())
    tokens = state["streams"]["0"]["packer"]["tokens"]
    data = bytearray(base64.b64decode(tokens["data"]))
    for end in (17, 34, 51, 68):
        data[end - 1] = 2
    tokens["data"] = base64.b64encode(data).decode()
    with opened("online") as stream:
        stream.set_state(resealed(state))
        for _ in range(6):
            stream.ledger.check()
            next(stream)


@pytest.mark.parametrize("packer", [{}, {"opens": [], "ends": []}])
def test_specials_of_documents_dropped_at_the_end_are_no_longer_counted(packer):
    """Fault 29: version 2 counted BOS and EOS of five documents of three tokens as content."""
    documents = Tally(input=5, emitted=4, dropped={"drop_last": 1})
    tokens = TokenTally(input=25, emitted=20, dropped={"drop_last": 5})
    nothing = tokens_to_json([])
    older = {
        "version": 2,
        "step": 1,
        "options": {
            "data.tokenizer.add_bos": True,
            "data.tokenizer.add_eos": True,
            "model.eos_token_id": 2,
        },
        "tokenizer": "0123",
        "streams": {
            "0": {
                "ready": {"tokens": nothing, "lengths": []},
                "packer": {"tokens": nothing, **packer},
                "ledger": Ledger(documents=documents, tokens=tokens).to_dict(),
            }
        },
    }
    ledger = Ledger.from_dict(opened_state(sealed(older))["streams"]["0"]["ledger"]).check()
    assert ledger.documents == documents
    assert ledger.tokens == TokenTally(input=15, emitted=12, dropped={"drop_last": 3}, special=8)


@pytest.mark.parametrize("name", ["bin-eos", "online-eos"])
def test_the_golden_states_of_different_versions_give_different_batches(name):
    assert EXPECTED[f"1-{name}"] != EXPECTED[f"2-{name}"]


def test_a_stream_of_files_imports_no_framework(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "abc"}\n')
    options = {
        "data": {
            "backend": "files",
            "files": [str(tmp_path / "a.jsonl")],
            "tokenizer": {"kind": "byte"},
        },
        "train": {"seq_len": 4, "batch_size": 1},
    }
    code = (
        "import sys; from quire.stream import open_stream; "
        f"next(open_stream({options!r})); "
        "print({'torch', 'jax', 'grain', 'datasets', 'transformers'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
