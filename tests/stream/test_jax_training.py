"""The parts of the JAX example: attention by segments, one compiled step, arrays on devices."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from quire.errors import InvalidOption
from quire.stream import GrainBatches, device_arrays
from tests.stream.adapters import arguments, stream

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture(scope="module")
def example():
    """The example as a module."""
    sys.path.insert(0, str(EXAMPLES))
    try:
        yield importlib.import_module("jax_training")
    finally:
        sys.path.remove(str(EXAMPLES))


def test_uniform_attention_over_two_documents_gives_their_running_means(example):
    values = jnp.array([1.0, 2.0, 3.0, 4.0]).reshape(1, 4, 1, 1)
    same = jnp.zeros((1, 4, 1, 1))
    segments = jnp.array([[1, 1, 2, 2]])
    mixed = example.attention(same, same, values, segments)
    assert mixed.reshape(-1).tolist() == [1.0, 1.5, 3.0, 3.5]
    mixed = example.attention(same, same, values, segments, segment_masking=False)
    assert mixed.reshape(-1).tolist() == [1.0, 1.5, 2.0, 2.5]


@pytest.fixture(scope="module")
def batch():
    """A batch in which rows hold several documents; ids below 259."""
    with stream(packing_mode="online", seq_len=16, grad_accum=2, emit_position_ids=True) as batches:
        return device_arrays(next(batches))


@pytest.fixture(scope="module")
def parameters(example):
    return example.initial_parameters(259, 16)


@pytest.mark.parametrize("segment_masking", [True, False])
def test_with_masked_segments_a_document_does_not_change_the_scores_of_others(
    example, batch, parameters, segment_masking
):
    """The control is the same model without masking, which must leak."""
    rows = {name: array[0] for name, array in batch.items()}
    first = rows["segment_ids"] == 1
    assert bool((rows["segment_ids"] == 2).any())
    changed = {**rows, "input_ids": jnp.where(first, 5, rows["input_ids"])}
    scores = jax.jit(example.logits, static_argnums=2)
    before = scores(parameters, rows, segment_masking)[~first]
    after = scores(parameters, changed, segment_masking)[~first]
    assert bool((before == after).all()) is segment_masking


def test_microbatches_in_one_compiled_step_weigh_every_target_equally(example, batch, parameters):
    """The count of traces is the count of compilations."""
    del example.traces[:]
    compiled = jax.jit(example.train_step, static_argnames="segment_masking")
    trees, losses = (parameters, jax.tree.map(jnp.zeros_like, parameters)), []
    options = {"packing_mode": "online", "grad_accum": 2, "emit_position_ids": True}
    for given in GrainBatches(**arguments(seq_len=16, **options)):
        *trees, loss = compiled(*trees, device_arrays(given), segment_masking=True)
        losses.append(float(loss))
    assert len(losses) > 2
    assert example.traces == [(2, 2, 16)]
    summed_loss = jax.jit(example.summed_loss, static_argnums=2)
    parts = [{name: array[number] for name, array in batch.items()} for number in range(2)]
    summed = sum(float(summed_loss(parameters, part, True)) for part in parts)
    assert losses[0] == pytest.approx(summed / int((batch["labels"] >= 0).sum()), rel=1e-5)


def test_arrays_on_devices_are_those_of_the_batch():
    with stream(packing_mode="online", seq_len=16, grad_accum=2) as batches:
        made = next(batches)
    arrays = device_arrays(made)
    assert set(arrays) == {"input_ids", "labels", "attention_mask", "segment_ids"}
    for name, array in arrays.items():
        assert isinstance(array, jax.Array)
        original = getattr(made, name)
        assert array.dtype == original.dtype
        assert np.array_equal(array, original)


def test_arrays_are_distributed_by_a_sharding():
    mesh = Mesh(np.array(jax.devices()[:1]), ("rows",))
    sharding = NamedSharding(mesh, PartitionSpec(None, "rows"))
    with stream(grad_accum=2) as batches:
        made = next(batches)
    arrays = device_arrays(made.to_dict(), sharding)
    assert {array.sharding for array in arrays.values()} == {sharding}
    assert np.array_equal(arrays["labels"], made.labels)
    too_many_axes = NamedSharding(mesh, PartitionSpec(None, None, None, "rows"))
    with pytest.raises(
        InvalidOption, match=r"input_ids of shape \(2, 2, 8\).*shard the second axis"
    ):
        device_arrays(made, too_many_axes)


TWO_DEVICES = """
import jax, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from quire.stream import device_arrays
from tests.stream.adapters import stream

assert jax.device_count() == 2
sharding = NamedSharding(Mesh(np.array(jax.devices()), ("rows",)), PartitionSpec(None, "rows"))
with stream(grad_accum=2) as batches:
    batch = next(batches)
array = device_arrays(batch, sharding)["input_ids"]
for shard in array.addressable_shards:
    assert np.array_equal(shard.data, batch.input_ids[shard.index])
print([shard.data.shape for shard in array.addressable_shards])
"""


def test_two_devices_receive_their_own_rows():
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", TWO_DEVICES],
        cwd=EXAMPLES.parent,
        env={**os.environ, **flags},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout.strip() == "[(2, 1, 8), (2, 1, 8)]", done.stderr
