from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.masks.oracle import segment_batches, visible, windows
from torch.nn.attention import flex_attention as flex_api

from quire.errors import InvalidOption
from quire.masks.dense import bool_mask
from quire.masks.flex import block_mask, mask_mod

LISTS = ["kv", "full_kv", "q", "full_q"]


def dense(mod, rows: int, length: int) -> np.ndarray:
    return flex_api.create_mask(mod, rows, 1, length, length, device="cpu").numpy()


def blocks(mask, name: str) -> torch.Tensor:
    """The block matrix of one of a BlockMask's four lists: a count and block numbers in order."""
    counts, indices = getattr(mask, f"{name}_num_blocks"), getattr(mask, f"{name}_indices")
    matrix = torch.zeros_like(indices)
    for place in np.ndindex(*counts.shape):
        listed = indices[place][: counts[place]]
        assert len(set(listed.tolist())) == len(listed)
        matrix[(*place, listed.long())] = 1
    return matrix


@settings(deadline=None)
@given(segment_batches(), windows)
def test_the_mask_mod_equals_the_oracle(segments, window):
    found = dense(mask_mod(segments, window), *segments.shape)
    assert np.array_equal(found, visible(segments, window)[:, None])


@settings(max_examples=60, deadline=None)
@given(segment_batches(), windows, st.sampled_from([1, 2, 3, 4, 8, 64]))
def test_every_block_list_is_the_one_that_torch_finds_by_looking_at_each_token(
    segments, window, block_size
):
    ours = block_mask(torch.from_numpy(segments), window, block_size)
    theirs = flex_api.create_block_mask(
        mask_mod(segments, window),
        B=segments.shape[0],
        H=None,
        Q_LEN=segments.shape[1],
        KV_LEN=segments.shape[1],
        device="cpu",
        BLOCK_SIZE=block_size,
    )
    assert ours.shape == theirs.shape
    for name in LISTS:
        assert torch.equal(blocks(ours, name), blocks(theirs, name)), name


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("window", [None, 37])
@pytest.mark.parametrize("length", [256, 300])
def test_flex_attention_gives_what_sdpa_gives_under_the_dense_mask(length, window):
    segments = torch.tensor([[1] * 100 + [2] * 29 + [3] * (length - 140) + [0] * 11] * 2)
    query, key, value = torch.randn(3, 2, 4, length, 8, dtype=torch.float64)
    found = flex_api.flex_attention(query, key, value, block_mask=block_mask(segments, window))
    expected = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=bool_mask(segments, window)
    )
    assert torch.allclose(found, expected, rtol=0, atol=1e-12)


def test_a_row_of_131072_tokens_needs_no_mask_of_its_size():
    starts = np.arange(0, 131_072, 700)
    segments = np.zeros((1, 131_072), dtype=np.int64)
    segments[0, starts] = 1
    mask = block_mask(segments.cumsum(axis=1))
    assert mask.shape == (1, 1, 131_072, 131_072)
    assert mask.kv_indices.shape == (1, 1, 1024, 1024)
    # Each block of queries touches at most the blocks of its own document and of the one before.
    assert int((mask.kv_num_blocks + mask.full_kv_num_blocks).max()) <= 7


@pytest.mark.parametrize("block_size", [0, -128, 1.5, True])
def test_a_block_size_that_is_not_a_positive_integer_is_rejected(block_size):
    with pytest.raises(InvalidOption, match="block_size"):
        block_mask([[1]], block_size=block_size)
