"""The options of one training step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from quire.errors import InvalidOption
from quire.options import Options, require_integer
from quire.options.rules import PositiveLength
from quire.step.costs import Cost

Labels = Sequence[object]


@dataclass(frozen=True, kw_only=True, eq=False)
class StepOptions(Options):
    """How the sequences of one training step become rows, ranks and micro-steps."""

    max_length: PositiveLength
    """The most tokens in a row: the budget of one micro-step on one rank."""
    num_ranks: PositiveLength = 1
    """Ranks that share the step (data parallel)."""
    overlong: Literal["error", "split", "drop"] = "error"
    """What happens to a sequence that does not fit into a row."""
    min_micro_steps: PositiveLength = 1
    """The least number of micro-steps."""
    micro_steps_multiple_of: PositiveLength = 1
    """What the number of micro-steps must be a multiple of, for pipeline schedules."""
    align: PositiveLength = 1
    """Pad every sequence in its row to a multiple of this, for context parallelism."""
    align_rows: PositiveLength = 1
    """Pad every row to a multiple of this."""
    groups: Labels | None = None
    """A label per sequence; sequences with the same label stay together. None as a label: free."""
    groups_share: Literal["row", "rank", "micro_step"] = "row"
    """What the sequences of a group share."""
    kinds: Labels | None = None
    """A label per sequence; all ranks of a micro-step have sequences of the same kind: a modality,
    an adapter, a policy version."""
    budgets: Mapping[str, tuple[Any, int]] | None = None
    """Further budgets of a row: ``{"images": (number per sequence, the most in a row)}``."""
    cost: Cost | None = None
    """What a sequence costs: ``(linear, quadratic)`` in its length, a model's config, or a function
    of an array of lengths. None: as `attention_costs`."""
    order: Literal["largest_first", "smallest_at_ends"] = "largest_first"
    """The order of micro-steps; with small ones at both ends pipelines idle less."""
    shapes: int | Sequence[int] | None = None
    """The most different row lengths, chosen so that padding is least; or the row lengths. For
    compiled models."""

    def __post_init__(self) -> None:
        super().__post_init__()
        shapes: Any = self.shapes  # or an array, or a tensor
        if isinstance(shapes, Sequence) or getattr(shapes, "ndim", None):
            object.__setattr__(self, "shapes", self._checked_shapes(shapes))
        elif shapes is not None:
            object.__setattr__(self, "shapes", require_integer("shapes", shapes, 1))
        if not self.row_space:
            raise InvalidOption(
                f"a row of {self.largest_row} tokens has no room for one aligned sequence "
                f"(align={self.align}, align_rows={self.align_rows}); raise max_length"
            )

    @property
    def largest_row(self) -> int:
        """The most tokens in a row that may be made."""
        if isinstance(self.shapes, tuple):
            return int(self.shapes[-1])
        return self.max_length // self.align_rows * self.align_rows

    @property
    def row_space(self) -> int:
        """The part of a row that aligned sequences can use."""
        return self.largest_row // self.align * self.align

    def spaces(self, lengths: Any) -> Any:  # noqa: ANN401 - a number or an array
        """The places that sequences of these lengths take in a row."""
        return -(-lengths // self.align) * self.align

    def num_micro_steps(self, needed: int) -> int:
        """The least allowed number of micro-steps that is not below the number needed."""
        least = max(needed, self.min_micro_steps)
        return -(-least // self.micro_steps_multiple_of) * self.micro_steps_multiple_of

    def _checked_shapes(self, shapes: Any) -> tuple[int, ...]:  # noqa: ANN401 - any sequence
        if isinstance(shapes, str | bytes) or not len(shapes):
            raise InvalidOption(f"shapes is {shapes!r} but must be an integer or row lengths")
        lengths = tuple(sorted({require_integer("shapes", shape, 1) for shape in shapes}))
        for shape in lengths:
            if shape > self.max_length or shape % self.align_rows:
                raise InvalidOption(
                    f"shapes has a row of {shape} tokens, but rows are multiples of "
                    f"{self.align_rows} (align_rows) of at most {self.max_length} (max_length)"
                )
        return lengths
