"""The collator that concatenates the rows of a batch, without padding or to a fixed shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field

import numpy as np

from quire.boundaries import Boundaries
from quire.boundaries.checks import read_starts
from quire.collate.attention import varlen_batch
from quire.collate.rows import Feature, Ints, Layout, Rows
from quire.collate.special_tokens import RowReader, SpecialTokens, eos_token_id, pad_token_id
from quire.collate.tensors import Batch, as_batch, require_return_tensors
from quire.errors import InvalidRow
from quire.labels import LabelOptions
from quire.options import require_flags, require_integer


@dataclass(frozen=True)
class PaddingFreeCollator:
    """Concatenates rows into one flat row `[1, N]`, with the bounds that varlen kernels take.

    The keys are those of transformers' `DataCollatorWithFlattening` and of TRL, and
    ``use_cache=False``, so that the batch is isolated even without varlen kernels.

    `num_tokens`, `num_segments` and `max_length` fix every shape and number in the batch, so that
    a compiled step is compiled once: the row is padded, in segments of at most `max_length`, and
    `cu_seq_lens` end in empty segments.

    >>> collator = PaddingFreeCollator(return_tensors="np", num_tokens=8, num_segments=4)
    >>> batch = collator([{"input_ids": [5, 6, 7]}, {"input_ids": [8, 9]}])
    >>> batch["input_ids"], batch["cu_seq_lens_q"]
    (array([[5, 6, 7, 8, 9, 0, 0, 0]]), array([0, 3, 5, 8, 8], dtype=int32))
    """

    tokenizer: SpecialTokens | None = None
    """For PAD (only a fixed shape has padding), EOS and BOS."""
    _: KW_ONLY
    packed_sequences: bool | None = None
    """What a row without starts holds. None: one document, with a warning if rows look packed.
    True: several, found from its tokens. False: one document."""
    ignore_index: int = -100
    train_on_eos: bool = True
    return_tensors: str = "pt"
    """``pt`` or ``np``."""
    num_tokens: int | None = None
    """Tokens in the row, padding included."""
    num_segments: int | None = None
    """Segments in `cu_seq_lens`: documents, padding and empty ones."""
    max_length: int | None = None
    """The longest document allowed; every batch has it as `max_length_q/k`."""
    _reader: RowReader = field(default_factory=RowReader, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        require_flags(self)
        require_return_tensors(self.return_tensors)
        for name in ("num_tokens", "num_segments", "max_length"):
            if (value := getattr(self, name)) is not None:
                require_integer(name, value, 1)
        _ = self._label_options

    def __call__(self, features: Sequence[Feature]) -> Batch:
        """The batch of these rows, which are not modified."""
        rows = self._reader.read(features, self.tokenizer, self.packed_sequences)
        boundaries = self._boundaries(rows)
        layout = Layout.of(boundaries)
        tokens = layout.place(rows.tokens, pad_token_id(self.tokenizer))
        batch: Batch = {
            "input_ids": tokens,
            "labels": layout.labels(rows, tokens, self._label_options),
            "position_ids": boundaries.position_ids(),
            "seq_idx": boundaries.seq_idx(),
            "use_cache": False,
        }
        batch |= self._varlen_arguments(boundaries)
        return as_batch(batch, self.return_tensors)

    def _boundaries(self, rows: Rows) -> Boundaries:
        lengths = np.array(rows.lengths)
        starts, counts = read_starts(rows.starts, lengths)
        starts = starts + (lengths.cumsum() - lengths).repeat(counts)
        total = int(lengths.sum())
        size = self._size(total, len(lengths))
        padding = np.arange(total, size, self.max_length or size)
        numbers = np.append(np.arange(1, len(starts) + 1), np.zeros_like(padding))
        boundaries = Boundaries(shape=(1, size), starts=np.append(starts, padding), numbers=numbers)
        self._require_fit(boundaries, counts)
        return boundaries

    def _size(self, total: int, num_rows: int) -> int:
        if self.num_tokens is not None and total > self.num_tokens:
            raise InvalidRow(
                f"the {num_rows} rows have {total} tokens but num_tokens is {self.num_tokens}; "
                "put fewer rows into a batch or raise num_tokens"
            )
        return self.num_tokens or total

    def _require_fit(self, boundaries: Boundaries, counts: Ints) -> None:
        num_segments, longest = len(boundaries.starts), boundaries.max_length
        if self.num_segments is not None and num_segments > self.num_segments:
            raise InvalidRow(
                f"the batch has {num_segments} segments, including padding, but num_segments is "
                f"{self.num_segments}; put fewer documents into a batch or raise num_segments"
            )
        if self.max_length is not None and longest > self.max_length:
            fragment = int(boundaries.lengths.argmax())
            row = int(counts.cumsum().searchsorted(fragment, side="right"))
            raise InvalidRow(
                f"row {row} has a document of {longest} tokens but max_length is "
                f"{self.max_length}; cut documents when packing or raise max_length"
            )

    def _varlen_arguments(self, boundaries: Boundaries) -> Batch:
        bounds = boundaries.cu_seqlens()
        if self.num_segments is not None:
            empty = self.num_segments + 1 - len(bounds)
            bounds = np.append(bounds, np.full(empty, boundaries.size, dtype=np.int32))
        longest = self.max_length or self.num_tokens or boundaries.max_length
        return varlen_batch(bounds, longest)

    @property
    def _label_options(self) -> LabelOptions:
        return LabelOptions(
            train_on_eos=self.train_on_eos,
            eos_token_id=eos_token_id(self.tokenizer),
            ignore_index=self.ignore_index,
        )
