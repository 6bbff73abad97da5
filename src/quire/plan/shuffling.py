"""A permutation that depends on the seed alone."""

from __future__ import annotations

import numpy as np

from quire.plan.lengths import IntArray


def permutation(count: int, seed: int | None) -> IntArray:
    """A random order of ``count`` things.

    numpy promises that the raw bits of PCG64 never change, but not that `Generator.permutation`
    does not: so raw bits are sorted, and the same seed gives the same order under any numpy.

    >>> permutation(5, seed=0)
    array([3, 2, 1, 0, 4])
    """
    return np.argsort(np.random.PCG64(seed).random_raw(count), kind="stable")
