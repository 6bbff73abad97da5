"""Segment forms: a mask for JAX attention, and the segment index of state-space kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from quire.errors import missing_dependency
from quire.masks.visibility import check_window, fragment_opens

if TYPE_CHECKING:
    import jax


def segment_mask(segment_ids: jax.Array, window: int | None = None) -> jax.Array:
    """True where a query attends to a key, `[B, 1, T, T]`, for `jax.nn.dot_product_attention`.

    Works under `jax.jit`, where values cannot be inspected, so the order of segments is not
    checked: they must count up, each in one run.
    """
    try:
        import jax.numpy as jnp  # only this function needs JAX
    except ImportError:
        raise missing_dependency("jax", "segment_mask", "jax") from None
    if window is not None:
        check_window(window)
    segments = jnp.asarray(segment_ids)
    age = jnp.arange(segments.shape[-1])[:, None] - jnp.arange(segments.shape[-1])
    reach = segments.shape[-1] if window is None else window
    same = segments[:, :, None] == segments[:, None, :]
    return (same & (age >= 0) & (age < reach))[:, None]


def seq_idx(segment_ids: npt.ArrayLike) -> npt.NDArray[np.int32]:
    """The number of each token's fragment, from 0, `[B, T]`; padding counts as one more.

    State-space kernels reset their state wherever it changes.

    >>> seq_idx([[1, 1, 2, 0, 0]])
    array([[0, 0, 1, 2, 2]], dtype=int32)
    """
    return (np.cumsum(fragment_opens(segment_ids), axis=1) - 1).astype(np.int32)
