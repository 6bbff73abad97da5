"""`TorchBatches`: what transformers trains on, the same for any number of workers, resumable."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from datasets import IterableDataset
from torch.utils.data import DataLoader, get_worker_info
from torchdata.stateful_dataloader import StatefulDataLoader
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from quire.errors import InvalidOption, InvalidState, SourceError
from quire.stream import TorchBatches, latest_state
from quire.stream.torch_adapter import model_inputs
from quire.verify import check_isolation
from tests.quick import few
from tests.stream.adapters import (
    MODES,
    SHARDS,
    arguments,
    byte_config,
    failing,
    stream,
    tensor_keys,
    through_bytes,
    write_texts,
)
from tests.stream.inputs import ListSource, take

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [
    # torchdata 0.11 calls what torch 2.13 deprecates; three workers are meant on any machine.
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
]


def dataset(source=None, state=None, shift_labels=True, **data):
    return TorchBatches(**arguments(source, **data), state=state, shift_labels=shift_labels)


def loader(given, num_workers, **more):
    return StatefulDataLoader(given, batch_size=None, num_workers=num_workers, **more)


def expected_keys(**data):
    with stream(**data) as batches:
        return tensor_keys(
            model_inputs(batch, number)
            for batch in take(batches)
            for number in range(len(batch.input_ids))
        )


GOLDEN = ListSource([[[10, 11, 12, 13, 14], [20, 21, 22, 23, 24], [30, 31, 32, 33, 34]]])


def test_the_golden_windows_as_inputs_of_transformers():
    given = dataset(GOLDEN, batch_size=1, shuffle=False)
    first, second, _ = list(given)
    assert first["input_ids"].tolist() == [[1, 10, 11, 12, 13, 14, 2, 1]]
    assert first["labels"].tolist() == [[-100, 10, 11, 12, 13, 14, 2, -100]]
    assert first["shift_labels"].tolist() == [[10, 11, 12, 13, 14, 2, -100, 20]]
    assert first["position_ids"].tolist() == [[0, 1, 2, 3, 4, 5, 6, 0]]
    assert second["input_ids"].tolist() == [[21, 22, 23, 24, 2, 1, 30, 31]]
    assert second["labels"].tolist() == [[-100, 22, 23, 24, 2, -100, 30, 31]]
    assert second["position_ids"].tolist() == [[0, 1, 2, 3, 4, 0, 1, 2]]


def test_an_eos_that_is_not_trained_has_no_label():
    first = next(iter(dataset(GOLDEN, batch_size=1, shuffle=False, train_on_eos=False)))
    assert first["labels"].tolist() == [[-100, 10, 11, 12, 13, 14, -100, -100]]
    assert first["shift_labels"].tolist() == [[10, 11, 12, 13, 14, -100, -100, 20]]


def test_a_microbatch_has_the_keywords_of_a_model_and_no_attention_mask():
    given = dataset(packing_mode="online", grad_accum=3)
    for inputs in given:
        assert set(inputs) == {"input_ids", "labels", "position_ids", "shift_labels", "use_cache"}
        assert inputs["use_cache"] is False
        tensors = [value for name, value in inputs.items() if name != "use_cache"]
        assert {(t.dtype, tuple(t.shape)) for t in tensors} == {(torch.int64, (2, 8))}
    assert "shift_labels" not in next(iter(dataset(shift_labels=False)))


def jax_pairs(batch):
    """(context within the fragment, target) of every position that a batch trains."""
    pairs = []
    rows = batch.input_ids.shape[0] * batch.input_ids.shape[1]
    inputs, labels, segments = (
        array.reshape(rows, -1) for array in (batch.input_ids, batch.labels, batch.segment_ids)
    )
    for row, place in zip(*(labels != -100).nonzero(), strict=True):
        seen = (segments[row] == segments[row, place])[: place + 1]
        context = tuple(inputs[row, : place + 1][seen].tolist())
        pairs.append((context, int(labels[row, place])))
    return pairs


def torch_pairs(inputs, targets):
    pairs = []
    for row, place in (targets != -100).nonzero().tolist():
        start = place - int(inputs["position_ids"][row, place])
        context = tuple(inputs["input_ids"][row, start : place + 1].tolist())
        pairs.append((context, int(targets[row, place])))
    return pairs


@pytest.mark.parametrize("mode", MODES)
def test_the_targets_are_those_of_the_stream_s_own_batches(mode):
    options = {"packing_mode": mode, "grad_accum": 2, **MODES[mode]}
    with stream(**options) as batches:
        promised = [pair for batch in take(batches) for pair in jax_pairs(batch)]
    microbatches = list(dataset(**options))
    trained = [p for inputs in microbatches for p in torch_pairs(inputs, inputs["shift_labels"])]
    assert trained == promised
    # Without shift_labels transformers shifts by itself: all but the last place of every row.
    shifted = [
        torch.nn.functional.pad(b["labels"], (0, 1), value=-100)[:, 1:] for b in microbatches
    ]
    without = [
        p for inputs, t in zip(microbatches, shifted, strict=True) for p in torch_pairs(inputs, t)
    ]
    last = [
        p
        for inputs in microbatches
        for p in torch_pairs(inputs, _only_last(inputs["shift_labels"]))
    ]
    assert sorted(without + last) == sorted(promised)
    assert last


def _only_last(targets):
    kept = torch.full_like(targets, -100)
    kept[:, -1] = targets[:, -1]
    return kept


@pytest.fixture(scope="module", params=["llama", "qwen3"])
def model(request):
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "vocab_size": 512}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 8}
    if request.param == "llama":
        return LlamaForCausalLM(LlamaConfig(**sizes, **heads)).double()
    return Qwen3ForCausalLM(Qwen3Config(**sizes, **heads)).double()


def test_the_loss_of_a_model_equals_the_loss_of_the_shifted_labels(model):
    """The negative control: labels that are already shifted would be shifted twice."""
    with stream(packing_mode="online", seq_len=32) as batches:
        batch = next(batches)
    inputs = model_inputs(batch)
    logits = model(**inputs).logits.reshape(-1, 512)
    targets = torch.from_numpy(batch.labels[0]).long()
    exact = torch.nn.functional.cross_entropy(logits, targets.reshape(-1))
    assert model(**inputs).loss.item() == pytest.approx(exact.item(), rel=1e-6)
    all_but_last = targets.clone()
    all_but_last[:, -1] = -100
    without = torch.nn.functional.cross_entropy(logits, all_but_last.reshape(-1))
    fewer = model_inputs(batch, shift_labels=False)
    assert model(**fewer).loss.item() == pytest.approx(without.item(), rel=1e-6)
    twice = model(**{**fewer, "labels": targets}).loss
    assert abs(twice.item() - exact.item()) > 1e-3


def test_documents_of_a_microbatch_are_isolated_in_a_model(model):
    with stream(packing_mode="online", seq_len=32) as batches:
        inputs = model_inputs(next(batches))
    assert check_isolation(model, inputs).verdict == "isolated"
    leaking = {**inputs, "attention_mask": torch.ones_like(inputs["input_ids"])}
    assert check_isolation(model, leaking).verdict != "isolated"


@pytest.mark.parametrize("num_workers", few([0, 1, 2, 3], one_in=2))
def test_any_number_of_workers_deliver_every_microbatch_once_and_in_order(num_workers):
    """Fault 46."""
    options = {"packing_mode": "online", "grad_accum": 2}
    expected = expected_keys(**options)
    stateful = loader(dataset(**options), num_workers)
    assert tensor_keys(stateful) == expected
    assert tensor_keys(stateful) == expected  # a second pass is whole, too
    plain = DataLoader(dataset(**options), batch_size=None, num_workers=num_workers)
    assert tensor_keys(plain) == expected


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("num_workers", "grad_accum"), few([(0, 2), (1, 1), (2, 1), (2, 3)], 4))
def test_a_loader_resumes_exactly_after_any_microbatch(mode, num_workers, grad_accum):
    """Faults 33 and 34: in flight are up to four microbatches, which the state does not count."""
    options = {"packing_mode": mode, "grad_accum": grad_accum, **MODES[mode], "batch_size": 3}
    expected = expected_keys(**options)
    running = loader(dataset(**options), num_workers)
    states, batches = [through_bytes(running.state_dict())], iter(running)
    for _ in expected:
        next(batches)
        states.append(through_bytes(running.state_dict()))
    for count, state in enumerate(states[:-1]):
        resumed = loader(dataset(**options), num_workers)
        resumed.load_state_dict(state)
        got = [
            next(iter_) for iter_ in [iter(resumed)] for _ in range(min(3, len(expected) - count))
        ]
        assert tensor_keys(got) == expected[count : count + 3], f"left behind {count}"
    with pytest.raises(StopIteration):
        next(batches)


@pytest.mark.slow
def test_a_loader_with_a_snapshot_every_third_step_resumes_exactly():
    expected = expected_keys(batch_size=1)
    running = loader(dataset(batch_size=1), 2, snapshot_every_n_steps=3)
    batches = iter(running)
    for count in range(1, 8):
        next(batches)
        state = through_bytes(running.state_dict())
        resumed = loader(dataset(batch_size=1), 2, snapshot_every_n_steps=3)
        resumed.load_state_dict(state)
        assert tensor_keys(resumed) == expected[count:]
        if count % 3:
            with pytest.raises(InvalidState, match="snapshot_every_n_steps=1"):
                latest_state(state)


def test_the_number_of_workers_may_change_at_a_resume():
    """Fault 33: the loader itself refuses, so its state goes through `latest_state`."""
    options = {"packing_mode": "online", "grad_accum": 2}
    expected = expected_keys(**options)
    got, state = [], None
    for num_workers, count in ((2, 3), (0, 2), (3, 4), (1, 3)):
        running = loader(dataset(**options, state=state), num_workers)
        batches = iter(running)
        got += [next(batches) for _ in range(count)]
        state = latest_state(through_bytes(running.state_dict()))
    assert tensor_keys(got) == expected[: len(got)]
    rest = dataset(**options)
    rest.load_state_dict(state)
    assert rest.state_dict()["stream"] == state["stream"]
    assert tensor_keys(rest) == expected[len(got) :]
    assert tensor_keys(rest) == expected  # the pass after that begins at the start


def examples(shards):
    for shard in shards:
        yield from ({"text": " ".join(map(str, document))} for document in shard)


@pytest.mark.parametrize("num_workers", few([2, 1, 3], one_in=3))
@pytest.mark.parametrize("grain_prefetch", [0, 2])
def test_a_dataset_that_splits_itself_over_workers_is_read_whole(num_workers, grain_prefetch):
    """`datasets` gives each worker some of its shards, so half of the batches would be missing."""
    options = {"packing_mode": "online", "grain_prefetch": grain_prefetch}
    expected = expected_keys(packing_mode="online", shuffle=False)

    def given():
        source = IterableDataset.from_generator(examples, gen_kwargs={"shards": SHARDS})
        return dataset(source, shuffle=False, **options)

    running = loader(given(), num_workers)
    batches = iter(running)
    got = [next(batches) for _ in range(5)]
    state = through_bytes(running.state_dict())
    assert tensor_keys([*got, *batches]) == expected
    resumed = loader(given(), num_workers)
    resumed.load_state_dict(state)
    assert tensor_keys(resumed) == expected[5:]


def test_the_worker_is_visible_again_after_reading():
    infos = []

    def collate(inputs):
        infos.append(get_worker_info())
        return infos[-1].id

    given = DataLoader(dataset(), batch_size=None, num_workers=2, collate_fn=collate)
    assert list(given)[:4] == [0, 1, 0, 1]


@pytest.mark.slow
def test_persistent_workers_refuse_a_state_loaded_after_they_started():
    given = dataset(repeat=False)
    whole = [inputs["input_ids"].tolist() for inputs in given]
    behind = iter(given)
    next(behind)
    state = given.state_dict()
    running = DataLoader(given, batch_size=None, num_workers=1, persistent_workers=True)
    for _ in range(2):
        assert [inputs["input_ids"].tolist() for inputs in running] == whole
    given.load_state_dict(state)
    with pytest.raises(InvalidState, match=r"loaded after this worker .* persistent_workers=False"):
        next(iter(running))
    anew = DataLoader(given, batch_size=None, num_workers=1, persistent_workers=True)
    assert [inputs["input_ids"].tolist() for inputs in anew] == whole[1:]


@pytest.mark.parametrize("num_workers", [1, 2])
def test_a_loaded_state_applies_to_one_pass_of_non_persistent_workers(num_workers):
    given = dataset(repeat=False)
    whole = [inputs["input_ids"].tolist() for inputs in given]
    next(iter(given))
    state = given.state_dict()
    running = DataLoader(given, batch_size=None, num_workers=num_workers)
    for _ in range(2):
        given.load_state_dict(state)
        assert [inputs["input_ids"].tolist() for inputs in running] == whole[1:]
        assert [inputs["input_ids"].tolist() for inputs in running] == whole
    assert [inputs["input_ids"].tolist() for inputs in given] == whole


def test_ranks_side_by_side_are_the_whole_batch():
    given = arguments(packing_mode="online")
    whole = TorchBatches(**given)
    ranks = [TorchBatches(**given, rank=rank, world_size=2) for rank in range(2)]
    for _, inputs, *parts in zip(range(5), whole, *ranks, strict=False):
        for name in ("input_ids", "labels", "position_ids", "shift_labels"):
            assert torch.equal(torch.cat([part[name] for part in parts]), inputs[name])


@pytest.mark.parametrize("num_workers", [0, 1, 2])
def test_a_failing_source_raises_its_own_type_and_never_ends_a_pass_early(num_workers):
    """Fault 43."""
    options = {"max_retries": 0, "shuffle": False, "batch_size": 1}
    batches = iter(loader(dataset(failing(), **options), num_workers))
    got = []
    with pytest.raises(SourceError, match="ConnectionResetError: record 4 of shard 0"):
        for batch in batches:
            got.append(batch)  # noqa: PERF402 - what came before the error is kept
    expected = expected_keys(**options)
    assert tensor_keys(got) == expected[: len(got)]
    if num_workers < 2:  # one reader has its order still, and the source is well again
        assert tensor_keys([*got, *batches]) == expected
    else:  # the other worker went on, so the one that failed may not
        with pytest.raises(SourceError):
            list(batches)
        # The error's traceback holds the loader; collected as a cycle it would wait for seconds.
        batches._shutdown_workers()


def test_processes_inside_a_worker_are_refused_with_the_remedy():
    with pytest.raises(InvalidOption, match=r"data.num_workers is 1 but a loader's worker cannot"):
        next(iter(DataLoader(dataset(num_workers=1), batch_size=None, num_workers=1)))


KILL = """
import os, signal, sys, warnings
warnings.simplefilter("ignore")
from datasets import IterableDataset
from torch.utils.data import DataLoader, get_worker_info
from torchdata.stateful_dataloader import StatefulDataLoader
from quire.stream import TorchBatches
from tests.stream.adapters import byte_config

kind = {"plain": DataLoader, "stateful": StatefulDataLoader}[sys.argv[2]]
batches = iter(kind(TorchBatches(byte_config(sys.argv[1])), batch_size=None, num_workers=2))
count = 0
try:
    for batch in batches:
        count += 1
        if count == 3:
            os.kill(batches._workers[1].pid, signal.SIGKILL)
    print("ended after", count)
except (RuntimeError, OSError, EOFError) as error:  # the latter two while a tensor is handed over
    print("error after", count, repr(error))
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["plain", "stateful"])
def test_a_killed_worker_raises_and_never_hangs_or_ends_early(tmp_path, kind):
    """Fault 42."""
    write_texts(tmp_path / "part.jsonl", 20)
    command = [sys.executable, "-c", KILL, str(tmp_path / "part.jsonl"), kind]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.startswith("error after"), done.stdout + done.stderr


RESUME = """
import json, sys, warnings
warnings.simplefilter("ignore")
from torchdata.stateful_dataloader import StatefulDataLoader
from quire.stream import TorchBatches
from tests.stream.adapters import byte_config, tensor_keys

loader = StatefulDataLoader(TorchBatches(byte_config(sys.argv[1])), batch_size=None,
                            num_workers=2, multiprocessing_context="spawn")
loader.load_state_dict(json.load(open(sys.argv[2])))
print(json.dumps(tensor_keys(loader)))
"""


@pytest.mark.slow
def test_a_new_process_with_spawned_workers_resumes_exactly(tmp_path):
    path, saved = tmp_path / "part.jsonl", tmp_path / "state.json"
    write_texts(path)
    expected = tensor_keys(TorchBatches(byte_config(path)))
    running = loader(TorchBatches(byte_config(path)), 2)
    batches = iter(running)
    for _ in range(5):
        next(batches)
    saved.write_text(json.dumps(running.state_dict()))
    command = [sys.executable, "-c", RESUME, str(path), str(saved)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=True
    )
    assert json.loads(done.stdout) == expected[5:]
