"""`GrainBatches`: a stream as a grain dataset, in order and resumable after any stage."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import grain
import pytest
from absl import flags
from grain.experimental import ThreadPrefetchIterDataset

import quire.stream
from quire.errors import InvalidOption, InvalidState, SourceError
from quire.stream import GrainBatches, latest_state
from tests.stream.adapters import (
    MODES,
    arguments,
    batch_keys,
    byte_config,
    failing,
    stream,
    through_bytes,
    write_texts,
)
from tests.stream.inputs import take

ROOT = Path(__file__).resolve().parents[2]

flags.FLAGS.mark_as_parsed()  # grain's processes read them


def dataset(source=None, state=None, **data):
    return GrainBatches(**arguments(source, **data), state=state)


def threaded(given):
    return ThreadPrefetchIterDataset(given, prefetch_buffer_size=2)


def in_processes(given, num_workers):
    return given.mp_prefetch(grain.MultiprocessingOptions(num_workers=num_workers))


def keys(batches):
    plain = [[(n, a.dtype.str, a.shape, a.tobytes()) for n, a in b.items()] for b in batches]
    return [tuple(sorted(batch)) for batch in plain]  # grain orders names as it likes


def some(iterator, count):
    return keys(next(iterator) for _ in range(count))


def test_grain_batches_are_the_stream_s_batches_as_dicts():
    assert keys(dataset(packing_mode="online", grad_accum=2)) == batch_keys(
        packing_mode="online", grad_accum=2
    )


STAGES = {
    "plain": (lambda given: given, {}),
    "own thread": (lambda given: given, {"grain_prefetch": 2}),
    "grain's thread": (threaded, {}),
    "both threads": (threaded, {"grain_prefetch": 2}),
    "map": (lambda given: threaded(given.map(dict)), {}),
}


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("mode", MODES)
def test_an_iterator_resumes_exactly_after_any_batch(mode, stage):
    """Faults 33 and 34."""
    staged, ahead = STAGES[stage]
    options = {"packing_mode": mode, **MODES[mode]}
    expected = batch_keys(**options)
    iterator = iter(staged(dataset(**options, **ahead)))
    for count in range(len(expected)):
        state = through_bytes(iterator.get_state())
        fresh = iter(staged(dataset(**options, **ahead)))
        fresh.set_state(state)
        assert through_bytes(fresh.get_state()) == state
        assert some(fresh, min(3, len(expected) - count)) == expected[count : count + 3]
        fresh.set_state(state)  # also back to it
        assert some(fresh, 1) == expected[count : count + 1]
        fresh.close()
        assert some(iterator, 1) == expected[count : count + 1]
    with pytest.raises(StopIteration):
        next(iterator)
    after = iter(staged(dataset(**options, **ahead)))
    after.set_state(through_bytes(iterator.get_state()))
    assert keys(after) == []


def test_batches_of_batches_resume_exactly():
    whole = batch_keys(batch_size=1)
    given = dataset(batch_size=1).batch(3, drop_remainder=True)
    batches = keys(given)
    assert len(batches) == len(whole) // 3
    iterator = iter(given)
    some(iterator, 2)
    state = through_bytes(iterator.get_state())
    fresh = iter(dataset(batch_size=1).batch(3, drop_remainder=True))
    fresh.set_state(state)
    assert keys(fresh) == batches[2:]


def test_a_closed_iterator_delivers_nothing():
    iterator = iter(dataset(grain_prefetch=2))
    some(iterator, 1)
    iterator.close()
    with pytest.raises(ValueError, match="closed iterator"):
        next(iterator)


def test_a_failing_source_raises_and_a_retry_loses_nothing():
    """Fault 43."""
    plain = {"shuffle": False, "batch_size": 1}
    for staged in (lambda given: given, threaded):
        iterator = iter(staged(dataset(failing(), max_retries=0, **plain)))
        got = []
        with pytest.raises(SourceError):
            while True:
                got += some(iterator, 1)
        assert got + keys(iterator) == batch_keys(**plain)


def test_contiguous_slices_of_a_stream_are_refused_with_the_remedy():
    with pytest.raises(InvalidOption, match="leave sequential_slice false"):
        dataset().set_slice(slice(0, None, 2), sequential_slice=True)


def test_workers_within_workers_are_refused():
    given = dataset()
    given.set_slice(slice(1, None, 2))
    given.set_slice(slice(1, None, 2))  # the same again, as grain may say it with each iterator
    assert keys(given) == batch_keys()[1::2]
    with pytest.raises(InvalidOption, match="already shared by 2 workers"):
        given.set_slice(slice(0, None, 3))


def test_the_config_has_the_vocabulary_that_a_model_needs():
    assert dataset().config.model.vocab_size == 1 << 20
    assert dataset().config.model.eos_token_id == 2


def test_an_unknown_option_is_an_error_before_anything_is_opened():
    with pytest.raises(InvalidOption, match="packing_mode"):
        GrainBatches({"data": {"packing_mod": "bin"}, "train": {"seq_len": 8, "batch_size": 1}})


def test_an_iterator_starts_from_a_stream_s_own_state():
    with stream() as batches:
        take(batches, 4)
        state = through_bytes(batches.get_state())
    given = dataset(state=state)
    assert keys(given) == keys(given) == batch_keys()[4:]


@pytest.mark.slow
@pytest.mark.parametrize("num_workers", [1, 2])
def test_process_workers_keep_the_order_and_resume_exactly(num_workers):
    """Faults 33 and 46: every process holds batches in flight, which the state does not count."""
    options = {"packing_mode": "online", "batch_size": 4}
    expected = batch_keys(**options)
    iterator = iter(in_processes(dataset(**options), num_workers))
    states = [through_bytes(iterator.get_state())]
    got = []
    for _ in range(len(expected)):
        got += some(iterator, 1)
        states.append(through_bytes(iterator.get_state()))
    assert got == expected
    with pytest.raises(StopIteration):
        next(iterator)
    iterator.close()
    fresh = iter(in_processes(dataset(**options), num_workers))
    try:
        for count in (3, 0, len(expected) - 1):
            fresh.set_state(states[count])
            assert some(fresh, 1) == expected[count : count + 1]
    finally:
        fresh.close()
    for count, state in enumerate(states):  # every step, with another number of workers: none
        assert keys(dataset(**options, state=latest_state(state))) == expected[count:]


@pytest.mark.slow
def test_a_state_of_two_workers_is_refused_by_three():
    """Fault 33: grain itself would silently start the third from the beginning."""
    iterator = iter(in_processes(dataset(), 2))
    some(iterator, 3)
    state = through_bytes(iterator.get_state())
    iterator.close()
    fresh = iter(in_processes(dataset(), 3))
    fresh.set_state(state)
    try:
        with pytest.raises(InvalidState, match=r"latest_state\(saved\)"):
            list(fresh)
    finally:
        fresh.close()


KILL = """
import multiprocessing, os, signal, sys
from absl import flags
import grain
from quire.stream import GrainBatches
from tests.stream.adapters import byte_config

if __name__ == "__main__":
    flags.FLAGS.mark_as_parsed()
    given = GrainBatches(byte_config(sys.argv[1]))
    batches = iter(given.mp_prefetch(grain.MultiprocessingOptions(num_workers=2)))
    count = 0
    try:
        for batch in batches:
            count += 1
            if count == 3:
                os.kill(multiprocessing.active_children()[0].pid, signal.SIGKILL)
        print("ended after", count)
    except RuntimeError as error:
        print("error after", count, repr(error))
"""


def run(script, *arguments):
    command = [sys.executable, "-c", script, *map(str, arguments)]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    return subprocess.run(
        command,
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.slow
def test_a_killed_process_raises_and_never_hangs_or_ends_early(tmp_path):
    """Fault 42."""
    write_texts(tmp_path / "part.jsonl", 20)
    done = run(KILL, tmp_path / "part.jsonl")
    assert done.stdout.startswith("error after"), done.stdout + done.stderr


RESUME = """
import json, sys
from quire.stream import GrainBatches
from tests.stream.adapters import byte_config

iterator = iter(GrainBatches(byte_config(sys.argv[1])))
iterator.set_state(json.load(open(sys.argv[2])))
print(json.dumps([{name: array.tolist() for name, array in batch.items()} for batch in iterator]))
"""


@pytest.mark.slow
def test_a_new_process_resumes_exactly(tmp_path):
    path, saved = tmp_path / "part.jsonl", tmp_path / "state.json"
    write_texts(path)
    iterator = iter(GrainBatches(byte_config(path)))
    for _ in range(3):
        next(iterator)
    saved.write_text(json.dumps(iterator.get_state()))
    expected = [{name: array.tolist() for name, array in batch.items()} for batch in iterator]
    done = run(RESUME, path, saved)
    assert json.loads(done.stdout or "null") == expected, done.stderr


IMPORTS = """
import sys
import quire.stream
print(sorted({"torch", "jax", "grain", "torchdata"} & set(sys.modules)))
"""


def test_importing_streams_imports_no_framework():
    assert run(IMPORTS).stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("package", "name", "extra"),
    [
        ("grain", "GrainBatches", "jax"),
        ("torch", "TorchBatches", "torch"),
        ("jax", "device_arrays", "jax"),
    ],
)
def test_without_its_package_an_adapter_says_what_to_install(package, name, extra):
    script = f"""
import sys
sys.modules[{package!r}] = None
import quire.stream
from quire.errors import MissingDependency
try:
    quire.stream.{name}
except MissingDependency as error:
    print(error)
"""
    expected = (
        f"{name} needs {package}, which is not installed; run: pip install 'quire-pack[{extra}]'"
    )
    assert run(script).stdout.strip() == expected


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'GrainBatch'"):
        quire.stream.GrainBatch  # noqa: B018 - the look-up is the test
