"""States that were saved by every version before this one still continue to the same batches."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from quire.stream import load_state, open_stream
from tests.stream.inputs import LENGTHS, ListSource, config, key, shards_of, take, unique_documents

FOLDER = Path(__file__).parent / "golden_states"
MODES = ["sequential", "bin", "online"]


def opened(mode):
    options = config(
        seq_len=16,
        packing_mode=mode,
        packing_buffer_docs=6,
        shuffle_buffer_size=5,
        seed=7,
        tokenizer={"kind": "byte"},
    )
    return open_stream(options, source=ListSource(shards_of(unique_documents(LENGTHS), 3)))


def digest_of_next(stream):
    batches = [key(batch) for batch in take(stream, 12)]
    return hashlib.sha256(repr(batches).encode()).hexdigest()


@pytest.mark.parametrize("mode", MODES)
def test_a_state_of_version_1_goes_on_to_the_batches_of_its_time(mode):
    expected = json.loads((FOLDER / "expected.json").read_text())
    with opened(mode) as stream:
        take(stream, 9)
        assert json.loads(json.dumps(stream.get_state())) == load_state(FOLDER / f"1-{mode}.json")
    with opened(mode) as stream:
        stream.set_state(load_state(FOLDER / f"1-{mode}.json"))
        assert digest_of_next(stream) == expected[f"1-{mode}"]


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
