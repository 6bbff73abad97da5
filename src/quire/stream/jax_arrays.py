"""Batches as arrays on JAX devices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

import numpy as np
import numpy.typing as npt

from quire.errors import InvalidOption, missing_dependency
from quire.stream.batch import Batch

try:
    import jax
except ModuleNotFoundError:
    raise missing_dependency("jax", "device_arrays", "jax") from None

if TYPE_CHECKING:
    from jax.sharding import Sharding


def device_arrays(
    batch: Batch | Mapping[str, npt.NDArray[np.generic]], sharding: Sharding | None = None
) -> dict[str, jax.Array]:
    """The arrays of a batch on the default device, or distributed by a sharding.

    With several processes, each passes the batch of its rank and receives the global one.

    >>> arrays = device_arrays({"input_ids": np.zeros((1, 2, 4), np.int32)})
    >>> arrays["input_ids"].shape
    (1, 2, 4)
    """
    arrays = batch.to_dict() if isinstance(batch, Batch) else batch
    if sharding is None:
        return {name: jax.device_put(array) for name, array in arrays.items()}
    return {name: _sharded(name, array, sharding) for name, array in arrays.items()}


def _sharded(name: str, array: npt.NDArray[np.generic], sharding: Sharding) -> jax.Array:
    try:
        made = jax.make_array_from_process_local_data(sharding, array)  # type: ignore[no-untyped-call]
    except (IndexError, ValueError) as error:
        raise InvalidOption(
            f"{name} of shape {array.shape} cannot be distributed by {sharding}: {error}; shard "
            "the second axis, the rows, over a number of devices that divides it"
        ) from error
    return cast(jax.Array, made)
