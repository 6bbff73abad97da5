"""The adapters beside the functions that they replace: the same form, the same rules, no worse.

`QUIRE_PEERS` names folders with the peers' packages, as `benchmarks/step_peers.py` says.
"""

from __future__ import annotations

import os
from itertools import chain

import numpy as np
import pytest
import torch
from benchmarks.step_peers import find_peers

from quire.compat import reinforcement as rl
from quire.errors import QuireError

CASES = range(int(os.environ.get("QUIRE_PEER_CASES", "40")))


@pytest.fixture(scope="module")
def peer():
    """A peer's module by its name."""
    modules = {name.split()[0]: module for name, module in find_peers()[0].items()}

    def find(name):
        if name not in modules:
            pytest.skip(f"{name} is in no folder of QUIRE_PEERS")
        return modules[name]

    return find


def drawn(seed, multiple=1):
    rng = np.random.default_rng(seed)
    number = multiple * int(rng.integers(1, 40))
    return rng, rng.lognormal(4, 0.8, number).astype(int).clip(1, 250)


def batch_of(lengths, jagged):
    parts = [torch.arange(length) for length in lengths.tolist()]
    if jagged:
        return {"input_ids": torch.nested.nested_tensor(parts, layout=torch.jagged)}
    mask = torch.arange(int(lengths.max()))[None] < torch.as_tensor(lengths)[:, None]
    ids = torch.nn.utils.rnn.pad_sequence(parts, batch_first=True)
    return {"input_ids": ids, "attention_mask": mask.long(), "reward": torch.arange(len(parts))}


def outcome(function, *arguments, **options):
    """What a function returns, or that it refuses."""
    try:
        return function(*arguments, **options)
    except (QuireError, ValueError, AssertionError):
        return None


def test_partitions_are_about_as_even_as_verls(peer):
    for seed in CASES:
        compare_partitions(peer("verl"), seed)


def compare_partitions(verl, seed):
    rng = np.random.default_rng(seed)
    k = int(rng.choice([2, 3, 4, 8]))
    lengths = rng.lognormal(8, 0.8, k * int(rng.integers(1, 20))).astype(int) + 1
    for equal in (True, False):
        divide = verl.get_seqlen_balanced_partitions
        theirs = divide(lengths.tolist(), k, equal)
        found = rl.get_seqlen_balanced_partitions(lengths.tolist(), k, equal)
        assert sorted(chain.from_iterable(found)) == sorted(chain.from_iterable(theirs))
        assert [part == sorted(part) for part in found] == [True] * len(theirs)
        if equal:
            assert [len(part) for part in found] == [len(part) for part in theirs]
        largest, of_theirs = (max(lengths[p].sum() for p in parts) for parts in (found, theirs))
        assert largest <= 1.02 * of_theirs


def test_micro_batches_follow_verls_rules_and_are_not_more(peer):
    for seed in CASES:
        compare_micro_batches(peer("verl"), seed)


def compare_micro_batches(verl, seed):
    group = [1, 1, 2][seed % 3]
    rng, lengths = drawn(seed, group)
    batch = batch_of(lengths, jagged=bool(seed % 2) and group == 1)
    options = {
        "num_batches_divided_by": [None, 2, 3][int(rng.integers(3))],
        "min_num_micro_batch": [None, 2, 30][int(rng.integers(3))],
        "use_dynamic_bsz_balance": bool(rng.integers(2)),
        "force_group_size": group,
    }
    theirs = outcome(verl.rearrange_micro_batches, batch, 256, **options)
    found = outcome(rl.rearrange_micro_batches, batch, 256, **options)
    if theirs is None:
        assert found is None
        return
    (batches, indices), (their_batches, their_indices) = found, theirs
    assert len(indices) <= len(their_indices)
    assert sorted(chain.from_iterable(indices)) == sorted(chain.from_iterable(their_indices))
    assert [batches[0].keys(), type(indices)] == [their_batches[0].keys(), type(their_indices)]
    places = np.argsort(list(chain.from_iterable(indices)))
    for name, values in batch.items():
        samples = list(chain.from_iterable(part[name].unbind() for part in batches))
        in_order = [samples[place] for place in places]
        assert all(map(torch.equal, in_order, values.unbind()))


@pytest.mark.parametrize("algorithm", ["modified_first_fit_decreasing", "first_fit_decreasing"])
def test_bins_follow_nemo_rls_rules_and_are_not_more(peer, algorithm):
    for seed in CASES:
        compare_bins(peer("NeMo-RL"), seed, algorithm)


def compare_bins(nemo, seed, algorithm):
    rng, lengths = drawn(seed)
    options = {
        "min_bin_count": [None, 1, 4, 30][int(rng.integers(4))],
        "bin_count_multiple": [None, 1, 2, 8][int(rng.integers(4))],
    }
    theirs = outcome(nemo.get_packer(algorithm, 256, **options).pack, lengths.tolist())
    found = outcome(rl.get_packer(algorithm, 256, **options).pack, lengths.tolist())
    if theirs is None:
        assert found is None
        return
    assert len(found) <= len(theirs)
    assert sorted(chain.from_iterable(found)) == sorted(chain.from_iterable(theirs))
    assert len(found) % (options["bin_count_multiple"] or 1) == 0
    assert len(found) >= (options["min_bin_count"] or 1)
    assert max(lengths[part].sum() for part in found) <= 256
