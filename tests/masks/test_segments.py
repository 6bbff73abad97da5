from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.masks.oracle import segment_batches, segment_row, visible, windows

from quire.errors import InvalidOption, MissingDependency
from quire.masks.segments import segment_mask, seq_idx

jax = pytest.importorskip("jax")


def test_uniform_attention_over_two_documents_gives_their_running_means():
    jnp = jax.numpy
    values = jnp.array([1.0, 2.0, 3.0, 4.0]).reshape(1, 4, 1, 1)
    same = jnp.zeros((1, 4, 1, 1))
    mask = segment_mask(jnp.array([[1, 1, 2, 2]]))
    mixed = jax.nn.dot_product_attention(same, same, values, mask=mask)
    assert mixed.reshape(-1).tolist() == [1.0, 1.5, 3.0, 3.5]


# One shape, because JAX compiles every operation anew for each.
@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(1, 12), max_size=8), windows)
def test_the_jax_mask_equals_the_oracle(lengths, window):
    segments = np.array([segment_row(lengths, 12), segment_row(lengths[::-1], 12)])
    assert np.array_equal(segment_mask(segments, window), visible(segments, window)[:, None])


def test_the_jax_mask_is_made_inside_a_compiled_step():
    segments = np.array([[1, 1, 2, 0]])
    compiled = jax.jit(segment_mask, static_argnums=1)
    assert np.array_equal(compiled(segments, 1), visible(segments, 1)[:, None])


@settings(deadline=None)
@given(segment_batches())
def test_two_tokens_share_a_seq_idx_exactly_when_they_share_a_document(segments):
    index = seq_idx(segments)
    assert index.dtype == np.int32
    assert (index[:, 0] == 0).all()
    assert np.isin(np.diff(index, axis=1), [0, 1]).all()
    same = index[:, :, None] == index[:, None, :]
    assert np.array_equal(same, segments[:, :, None] == segments[:, None, :])


def test_a_window_below_one_is_rejected():
    with pytest.raises(InvalidOption, match="a token attends at least to itself"):
        segment_mask(np.array([[1]]), window=0)
    assert segment_mask(np.array([[1]]), window=np.int64(1)) is not None


def test_without_jax_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "jax.numpy", None)
    with pytest.raises(MissingDependency, match=r"pip install 'quire-pack\[jax\]'"):
        segment_mask(np.array([[1]]))
