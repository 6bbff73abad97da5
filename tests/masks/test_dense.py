from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from tests.masks.oracle import segment_batches, visible, windows

from quire.errors import InvalidOption
from quire.masks.dense import bool_mask, float_mask


def test_two_documents_and_padding_make_three_triangles():
    expected = [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [0, 0, 1, 0, 0],
        [0, 0, 0, 1, 0],
        [0, 0, 0, 1, 1],
    ]
    assert bool_mask([[1, 1, 2, 0, 0]])[0, 0].astype(int).tolist() == expected


def test_a_window_of_two_keeps_the_token_and_its_neighbor():
    expected = [[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 0, 1]]
    assert bool_mask([[1, 1, 1, 2]], window=2)[0, 0].astype(int).tolist() == expected


@settings(deadline=None)
@given(segment_batches(), windows)
def test_numpy_and_torch_masks_equal_the_oracle(segments, window):
    expected = visible(segments, window)[:, None]
    assert np.array_equal(bool_mask(segments, window), expected)
    tensor = bool_mask(torch.from_numpy(segments), window)
    assert tensor.dtype == torch.bool
    assert np.array_equal(tensor.numpy(), expected)


@settings(deadline=None)
@given(segment_batches(), windows)
def test_float_masks_are_zero_exactly_where_bool_masks_are_true(segments, window):
    expected = visible(segments, window)[:, None]
    floats = float_mask(segments, np.float32, window)
    assert floats.dtype == np.float32
    assert np.array_equal(floats == 0, expected)
    assert (floats[~expected] == np.finfo(np.float32).min).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_a_torch_float_mask_has_the_dtype_of_the_model_and_its_lowest_number(dtype):
    floats = float_mask(torch.tensor([[1, 1, 2]]), dtype)
    assert floats.dtype == dtype
    assert floats.unique().tolist() == [torch.finfo(dtype).min, 0]


@pytest.mark.parametrize("form", ["bool", "float"])
def test_padding_produces_no_nan_and_gives_other_tokens_zero_weight(form):
    segments = torch.tensor([[1, 1, 2, 0, 0], [0, 0, 0, 0, 0]])
    mask = bool_mask(segments) if form == "bool" else float_mask(segments, torch.float32)
    query, key = torch.randn(2, 2, 1, 5, 4)
    weights = torch.nn.functional.scaled_dot_product_attention(
        query, key, torch.eye(5).expand(2, 1, 5, 5), attn_mask=mask
    )
    assert torch.isfinite(weights).all()
    assert torch.equal(weights != 0, torch.from_numpy(visible(segments)[:, None]))


@pytest.mark.parametrize(
    ("segments", "dtype"),
    [
        (np.array([[1]]), np.int32),
        (np.array([[1]]), torch.float32),
        (torch.tensor([[1]]), torch.int64),
        (torch.tensor([[1]]), np.float32),
    ],
)
def test_a_float_mask_needs_a_floating_dtype(segments, dtype):
    with pytest.raises(InvalidOption, match="floating dtype"):
        float_mask(segments, dtype)


@pytest.mark.parametrize("module", ["dense", "varlen", "segments", "visibility"])
def test_importing_a_numpy_mask_loads_neither_torch_nor_jax(module):
    code = (
        f"import sys, quire.masks.{module}; "
        "print([name for name in ('torch', 'jax', 'transformers') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
