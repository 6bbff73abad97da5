"""Streams of the `datasets` package, read from a state that `datasets` itself provides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from quire.errors import InvalidOption, InvalidState


class HubShard:
    """One shard of an `IterableDataset`: its examples, and a state after each of them."""

    def __init__(
        self,
        dataset: Any,  # noqa: ANN401 - theirs
        number: int,
        num_shards: int,
        state: Mapping[str, Any] | None = None,
    ) -> None:
        self._dataset = dataset.shard(num_shards=num_shards, index=number)
        # `datasets` reports the very start until the first example after a restore is taken.
        self._restored = None if state is None else self._restore(state)
        self._examples: Iterator[object] = iter(self._dataset)

    def next(self) -> object:
        """The next example; StopIteration after the last."""
        example = next(self._examples)
        self._restored = None
        return example

    def state_dict(self) -> Mapping[str, Any]:
        """The position after the last example."""
        if self._restored is not None:
            return self._restored
        state: dict[str, Any] = self._dataset.state_dict()
        return state

    def _restore(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            self._dataset.load_state_dict(state)
        except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
            raise InvalidState(
                f"datasets cannot read its own state: {error!r}; use a state as it was saved"
            ) from error
        return state


def num_shards(dataset: object) -> int:
    """How many shards an `IterableDataset` has."""
    return max(1, int(getattr(dataset, "num_shards", 1) or 1))


def require_unshuffled(dataset: object, option: str) -> None:
    """Raise if `datasets` shuffles with a buffer in any stage: its content is lost on resume.

    ``option`` is the name of the option that shuffles instead.
    """
    stages = [getattr(dataset, "_ex_iterable", None)]
    while stages:
        stage = stages.pop()
        if any("BufferShuffled" in kind.__name__ for kind in type(stage).__mro__):
            raise InvalidOption(
                "the dataset is shuffled by datasets, whose buffer is lost on resume; leave out "
                f".shuffle() and set {option}, which resumes exactly"
            )
        stages += _inner_stages(stage)


def _inner_stages(stage: object) -> list[object]:
    """The stages that one reads from, whichever attributes hold them: one, or a list of several.

    Arguments of a generator (``gen_kwargs``) are not among them: it runs again on resume.
    """
    inner = []
    for value in vars(stage).values() if hasattr(stage, "__dict__") else ():
        several = value if isinstance(value, list | tuple) else [value]
        inner += [item for item in several if _is_stage(item)]
    return inner


def _is_stage(value: object) -> bool:
    names = {kind.__name__ for kind in type(value).__mro__}
    return "_BaseExamplesIterable" in names or "IterableDataset" in names
