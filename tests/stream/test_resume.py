"""Left after any batch and taken up from bytes in a new stream, a stream goes on as if nothing was.

Every combination of packer, source, shuffle, prefetch and workers is left at every step;
`tests.machines.resume_points` counts many more.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from functools import cache
from itertools import product
from pathlib import Path

import pytest
from datasets import IterableDataset, load_dataset

from quire.config import load_options
from quire.stream import StreamConfig, load_state, open_stream, save_state
from quire.stream.encode import ProcessEncoder, make_encoder
from quire.text import as_tokenizer
from tests.quick import few
from tests.stream.inputs import (
    LENGTHS,
    ListSource,
    Numbers,
    config,
    digest,
    key,
    options_of,
    same,
    shards_of,
    take,
    unique_documents,
    write_jsonl,
    write_parquet,
)

ROOT = Path(__file__).resolve().parents[2]
NUM_STEPS = 24
DOCUMENTS = unique_documents(LENGTHS)
SHARDS = shards_of(DOCUMENTS, 3)
MODES = {
    "sequential": {},
    "bin": {"packing_buffer_docs": 5},
    "bin capped": {"packing_buffer_docs": 4, "packing_max_docs_per_bin": 2},
    "online": {"packing_buffer_docs": 6},
}


def _examples(shards):
    for shard in shards:
        yield from ({"text": text} for text in shard)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shards")
    write_jsonl(folder, SHARDS)
    write_parquet(folder, SHARDS)
    return folder


@cache  # load_dataset looks for the hub for seconds where there is none
def _json_dataset(folder):
    files = [str(folder / f"part-{number}.jsonl") for number in range(len(SHARDS))]
    return load_dataset("json", data_files=files, split="train", streaming=True)


def source_options(kind, folder):
    """Options of ``data``, and other arguments of `open_stream`."""
    if kind == "local_text":
        return {"backend": "local_text", "local_text": "11 12 13 14 15 16"}, {}
    if kind in ("jsonl", "parquet"):
        return {"backend": "files", "files": [str(folder / f"part-*.{kind}")]}, {}
    if kind == "hf json":
        return {}, {"source": _json_dataset(folder)}
    if kind == "hf generator":
        texts = [[" ".join(map(str, document)) for document in shard] for shard in SHARDS]
        dataset = IterableDataset.from_generator(_examples, gen_kwargs={"shards": texts})
        return {}, {"source": dataset}
    return {}, {"source": ListSource(SHARDS)}


def opened(options, kind, folder, **ranks):
    data, given = source_options(kind, folder)
    return open_stream(config(**data, **options), tokenizer=Numbers(), **given, **ranks)


def through_bytes(state):
    return json.loads(json.dumps(state).encode())


def states_and_batches(stream, count):
    """The states before the first batch and after each, and the batches."""
    states, batches = [through_bytes(stream.get_state())], []
    for _ in range(count):
        got = take(stream, 1)
        if not got:
            break
        batches += got
        states.append(through_bytes(stream.get_state()))
    return states, batches


def resume_everywhere(open_anew, states, batches, *, count, tail):
    """Stop at every step, and compare the next ``tail`` batches and the state after them."""
    for step, state in enumerate(states[: count + 1]):
        with open_anew() as stream:
            stream.set_state(state)
            if tail > 1:
                assert stream.get_state() == state, f"the state of step {step} does not come back"
            continued = take(stream, tail)
            expected = batches[step : step + tail]
            assert same(continued, expected), f"left after {step} batches"
            assert stream.get_state() == states[step + len(continued)]
            stream.ledger.check()
            if len(continued) < tail:
                assert take(stream, 1) == []


SOURCES = ["list", "local_text", "jsonl", "parquet", "hf json", "hf generator"]
ORDERS = {"ordered": False, "shuffled": True}
ENDS = {"endless": True, "ending": False}
AHEAD = {
    "now": {},
    "prefetch": {"grain_prefetch": 2},
    "workers": {"num_workers": 2},
    "prefetch and workers": {"grain_prefetch": 2, "num_workers": 2},
}
UNDISTURBED = {}


def cell_options(mode, order, end="endless"):
    return {
        "packing_mode": mode.split()[0],
        **MODES[mode],
        "shuffle": ORDERS[order],
        "shuffle_buffer_size": 4,
        "state_update_interval": 3,
        "seed": 5,
        "repeat": ENDS[end],
    }


def undisturbed(kind, mode, order, end, folder):
    """States and batches of a stream without threads and processes, made once."""
    cell = kind, mode, order, end
    if cell not in UNDISTURBED:
        with opened(cell_options(mode, order, end), kind, folder) as stream:
            UNDISTURBED[cell] = states_and_batches(stream, NUM_STEPS + 4)
    return UNDISTURBED[cell]


class SharedWorkers:
    """Two worker processes for all streams of the module, because starting them takes time."""

    num_ahead = 4

    def __init__(self):
        options = options_of(num_workers=2, add_bos=True, bos_token_id=1, eos_token_id=2)
        self.encoder = ProcessEncoder(as_tokenizer(Numbers()), options)
        self.submit = self.encoder.submit

    def close(self):
        pass

    def make(self, tokenizer, options, answers):
        if not options.num_workers:
            return make_encoder(tokenizer, options, answers)
        assert (options.bos, options.eos, options.num_workers) == (1, 2, 2)
        return self


@pytest.fixture(scope="module")
def shared_workers():
    workers = SharedWorkers()
    yield workers
    workers.encoder.close()


@pytest.fixture
def workers(shared_workers, monkeypatch):
    monkeypatch.setattr("quire.stream.open.make_encoder", shared_workers.make)


MATRIX = list(product(SOURCES, MODES, ORDERS, AHEAD, ENDS))


@pytest.mark.usefixtures("workers")
@pytest.mark.parametrize(("kind", "mode", "order", "ahead", "end"), few(MATRIX, one_in=11))
def test_a_stream_resumes_exactly_after_any_batch(kind, mode, order, ahead, end, folder):
    """Faults 33 and 34: with other prefetch and workers, before the first and after the last."""
    options = {**cell_options(mode, order, end), **AHEAD[ahead]}
    states, batches = undisturbed(kind, mode, order, end, folder)
    if kind.startswith("hf"):
        count = 5  # `datasets` takes its time to open
    else:
        count = NUM_STEPS if ahead == "now" and kind != "local_text" else 6
    resume_everywhere(lambda: opened(options, kind, folder), states, batches, count=count, tail=2)


@pytest.mark.usefixtures("workers")
@pytest.mark.parametrize(("kind", "mode", "order"), few(product(SOURCES, MODES, ORDERS), 5))
def test_three_saves_and_restores_in_a_row_are_exact(kind, mode, order, folder):
    """Each link of the chain has other threads and processes than the one before."""
    options = cell_options(mode, order)
    _, batches = undisturbed(kind, mode, order, "endless", folder)
    got, state = [], None
    for ahead in ("prefetch", "workers", "prefetch and workers", "now"):
        with opened({**options, **AHEAD[ahead]}, kind, folder) as stream:
            if state is not None:
                stream.set_state(state)
            got += take(stream, 2)
            state = through_bytes(stream.get_state())
    assert same(got, batches[:8])


IN_A_FRESH_PROCESS = """
import json, sys
from quire.stream import load_state, open_stream
from tests.stream.inputs import Numbers, digest, take

for line in sys.stdin:
    config, state = json.loads(line)
    with open_stream(config, tokenizer=Numbers()) as stream:
        stream.set_state(load_state(state))
        print(json.dumps([digest(batch) for batch in take(stream, 3)]))
"""


@pytest.mark.slow
def test_a_new_process_resumes_exactly(folder, tmp_path):
    """Only a file is passed from one process to the other."""
    lines, expected = [], []
    for kind, mode, order in product(("local_text", "jsonl", "parquet"), MODES, ORDERS):
        states, batches = undisturbed(kind, mode, order, "endless", folder)
        options = config(**source_options(kind, folder)[0], **cell_options(mode, order))
        for step in (0, 1, 6, 13, 20):
            file = tmp_path / f"{len(lines)}.json"
            save_state(states[step], file)
            lines.append(json.dumps([options, str(file)]))
            expected.append([digest(batch) for batch in batches[step : step + 3]])
    command = [sys.executable, "-c", IN_A_FRESH_PROCESS]
    done = subprocess.run(
        command, input="\n".join(lines), capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert [json.loads(line) for line in done.stdout.splitlines()] == expected


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shuffle", [False, True])
def test_chains_of_saves_and_restores_lose_nothing(mode, shuffle, folder, tmp_path):
    """Every batch in a stream of its own, through a file, with prefetch changing on the way."""
    options = {
        "packing_mode": mode.split()[0],
        **MODES[mode],
        "shuffle": shuffle,
        "shuffle_buffer_size": 5,
        "emit_position_ids": True,
    }
    with opened(options, "jsonl", folder) as stream:
        expected = take(stream, 40)
    got, file = [], tmp_path / "state.json"
    for step in range(40):
        with opened({**options, "grain_prefetch": step % 3}, "jsonl", folder) as stream:
            if step:
                stream.set_state(load_state(file))
            got += take(stream, 1)
            save_state(stream.get_state(), file)
    assert same(got, expected)


@pytest.mark.slow
def test_long_streams_resume_at_thousands_of_points():
    """Tiny batches of a growing stream, so that every phase of every buffer occurs."""
    for mode, shuffle, num_streams in product(MODES, (False, True), (1, 2)):
        plain = config(
            seq_len=5,
            batch_size=2,
            packing_mode=mode.split()[0],
            **MODES[mode],
            shuffle=shuffle,
            shuffle_buffer_size=7,
            state_update_interval=5,
            num_streams=num_streams,
        )

        options = load_options(StreamConfig, plain)

        def open_anew(options=options):
            return open_stream(options, source=ListSource(SHARDS), tokenizer=Numbers())

        with open_anew() as stream:
            states, batches = states_and_batches(stream, 400 + 1)
        resume_everywhere(open_anew, states, batches, count=400, tail=1)


def test_epochs_have_the_same_documents_in_different_orders():
    options = config(packing_mode="sequential", shuffle_buffer_size=6, batch_size=1, seq_len=1)
    per_epoch = sum(length + 2 for length in LENGTHS if length)
    source = ListSource(SHARDS)
    with open_stream(options, source=source, tokenizer=Numbers()) as stream:
        tokens = []
        while len(tokens) < 2 * per_epoch + 1:
            (batch,) = take(stream, 1)
            last = batch.labels[0, 0, -1]
            tokens += [int(batch.input_ids[0, 0, 0]), int(last)]
        stream.ledger.check()
    # -100 hides the token behind an EOS, which is always BOS here.
    tokens = [1 if token == -100 else token for token in tokens]
    first, second = tokens[:per_epoch], tokens[per_epoch : 2 * per_epoch]
    assert sorted(first) == sorted(second)
    assert first != second


def test_a_config_can_name_a_loader_of_datasets(folder):
    files = [str(folder / f"part-{number}.jsonl") for number in range(len(SHARDS))]
    options = config(hf_dataset="json", hf_data_files=files, shuffle=False)
    with (
        open_stream(options, tokenizer=Numbers()) as stream,
        opened({"shuffle": False}, "jsonl", folder) as other,
    ):
        batches = take(stream, 10)
        assert same(batches, take(other, 10))
        state = through_bytes(stream.get_state())
    with open_stream(options, tokenizer=Numbers()) as stream:
        stream.set_state(state)
        assert stream.get_state() == state


def test_the_same_config_gives_the_same_batches_twice(folder):
    options = {"shuffle_buffer_size": 5, "packing_mode": "online"}
    runs = []
    for _ in range(2):
        with opened(options, "jsonl", folder) as stream:
            runs.append([key(batch) for batch in take(stream, 20)])
    assert runs[0] == runs[1]


def test_resuming_reads_at_most_one_shuffle_window_again():
    documents = unique_documents([3] * 400)
    options = config(shuffle_buffer_size=10, batch_size=1, packing_mode="sequential")
    with open_stream(options, source=ListSource([documents]), tokenizer=Numbers()) as stream:
        take(stream, 150)
        state = through_bytes(stream.get_state())
    source = ListSource([documents])
    with open_stream(options, source=source, tokenizer=Numbers()) as stream:
        stream.set_state(state)
        take(stream, 1)
    (shard, cursor), *more = source.opened
    assert shard == 0
    assert cursor > 100
    assert cursor % 10 == 0
    assert not more


def test_workers_do_not_change_batches_or_states(folder):
    """Fault 33."""
    for mode in ("sequential", "online"):
        options = {"packing_mode": mode, "shuffle_buffer_size": 5, "packing_buffer_docs": 6}
        with opened(options, "jsonl", folder) as stream:
            states, batches = states_and_batches(stream, 12)
        with opened({**options, "num_workers": 2, "grain_prefetch": 2}, "jsonl", folder) as stream:
            assert states_and_batches(stream, 12)[0] == states
            for step in (7, 0, 3):
                stream.set_state(states[step])
                assert same(take(stream, 12 - step), batches[step:])


def test_batches_prefetched_before_a_close_are_delivered_after_it(folder):
    options = {"shuffle_buffer_size": 5, "grain_prefetch": 2}
    with opened({**options, "grain_prefetch": 0}, "jsonl", folder) as stream:
        batches = take(stream, 6)
    with opened(options, "jsonl", folder) as stream:
        before = take(stream, 3)
        while stream._prefetcher._queue.qsize() < 2:  # the thread is at work
            time.sleep(0.001)
        stream.close()
        assert stream.get_state()["step"] == 3
        assert same(before + take(stream, 3), batches)


def test_state_update_interval_affects_only_cost(folder):
    options = {"shuffle": False, "packing_mode": "bin", "packing_buffer_docs": 5}
    with opened({**options, "state_update_interval": 2}, "jsonl", folder) as stream:
        states, batches = states_and_batches(stream, 12)
    for interval in (1, 3, 1000):
        for step in range(12):
            with opened({**options, "state_update_interval": interval}, "jsonl", folder) as stream:
                stream.set_state(states[step])
                assert same(take(stream, 12 - step), batches[step:])
