"""The collator that stacks and pads packed rows, with the labels and mask that a model needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import InitVar, dataclass, field
from typing import TYPE_CHECKING

import numpy.typing as npt

from quire.boundaries import Boundaries, require_multiple
from quire.collate.attention import (
    ATTENTION,
    DENSE,
    MASK_DTYPES,
    eager_arguments,
    padded_varlen_arguments,
    sdpa_arguments,
)
from quire.collate.rows import Feature, Layout, Rows, fit, num_places, one_document
from quire.collate.special_tokens import RowReader, SpecialTokens, eos_token_id, pad_token_id
from quire.collate.tensors import Batch, as_batch, require_return_tensors
from quire.errors import InvalidOption, InvalidRow, unknown_name
from quire.labels import LabelOptions
from quire.options import require_flags, require_integer

if TYPE_CHECKING:
    from quire.masks.dense import Windows

PADDING = ("longest", "max_length", "do_not_pad")


@dataclass(frozen=True)
class DataCollatorForCausalLM:
    """Collates rows into `{input_ids, labels, position_ids, …}`; ``model(**batch)`` is isolated.

    Labels are unshifted: transformers shifts them. Rows are padded on the right.

    >>> class Tokenizer:
    ...     pad_token_id = eos_token_id = 2
    >>> collator = DataCollatorForCausalLM(Tokenizer(), return_tensors="np")
    >>> batch = collator(
    ...     [
    ...         {"input_ids": [5, 6, 2, 7, 2], "document_starts": [0, 3]},
    ...         {"input_ids": [8, 9, 2], "document_starts": [0]},
    ...     ]
    ... )
    >>> batch["position_ids"]
    array([[0, 1, 2, 0, 1],
           [0, 1, 2, 0, 1]])
    >>> batch["labels"]
    array([[-100,    6,    2, -100,    2],
           [-100,    9,    2, -100, -100]])
    """

    tokenizer: SpecialTokens
    truncation: bool = False
    """Whether rows longer than `max_length` are cut; otherwise they are an error."""
    ignore_index: int = -100
    input_name: str = "input_ids"
    """The name of the tokens in the batch; rows have `input_ids`."""
    labels_name: str = "labels"
    """The name of the labels in the batch; rows have `labels`, or none."""
    packed_sequences: bool | None = None
    """Whether positions restart. None: if any row has starts, with a warning if none has and rows
    look packed. True: always; starts are found from tokens in rows without them. False: never, but
    labels are still masked by starts."""
    padding: str | bool = "longest"
    """``longest`` (or True), ``max_length``, or ``do_not_pad`` (or False): rows of one length."""
    max_length: int | None = None
    """The most tokens in a row, padding included."""
    return_tensors: str = "pt"
    """``pt`` or ``np``."""
    attention: str | None = "transformers"
    """The backend whose mask is added; None adds nothing. With `model`, the default becomes the
    first form that keeps documents apart in that model."""
    mask_boundary_loss: bool = True
    train_on_eos: bool = True
    pad_documents_to: int = 1
    """Pad every fragment inside its row to a multiple of this."""
    windows: Windows = None
    """Sliding windows for the masks of ``sdpa`` and ``eager``: one for all layers, or one (or None)
    for each of the model's `layer_types`, which makes `attention_mask` a mapping of masks."""
    mask_dtype: str = "float32"
    """The dtype of the mask of ``eager``: some models need their own, which `model` selects."""
    model: InitVar[object | None] = None
    """The model that the batches are for. Isolation is proven on it, once per model, by
    `quire.verify.check_isolation` on a small batch, or a ModelError is raised. Not stored."""
    _reader: RowReader = field(default_factory=RowReader, init=False, repr=False, compare=False)

    def __post_init__(self, model: object | None) -> None:
        require_flags(self)
        require_return_tensors(self.return_tensors)
        self._require_names()
        if not isinstance(self.padding, bool) and self.padding not in PADDING:
            raise unknown_name("padding", self.padding, PADDING)
        self._require_lengths()
        _ = self._label_options
        self._require_attention()
        if model is not None:
            self._choose_attention(model)

    def _require_names(self) -> None:
        if self.input_name == self.labels_name:
            raise InvalidOption(
                f"input_name and labels_name are both {self.input_name!r}, so labels would "
                "replace tokens; give them different names"
            )

    def _require_attention(self) -> None:
        if self.attention is not None and self.attention not in tuple(ATTENTION):
            raise unknown_name("attention", self.attention, ATTENTION)
        if self.attention == "flex" and self.return_tensors == "np":
            raise InvalidOption("attention='flex' makes a torch BlockMask; use return_tensors='pt'")
        if self.mask_dtype not in MASK_DTYPES:
            raise unknown_name("mask_dtype", self.mask_dtype, MASK_DTYPES)
        if self.mask_dtype != "float32" and self.return_tensors == "np":
            raise InvalidOption(
                f"mask_dtype={self.mask_dtype!r} makes a torch mask; use return_tensors='pt'"
            )
        if self.windows is not None and self.attention not in DENSE:
            raise InvalidOption(
                f"windows={self.windows!r} apply to dense masks, but attention="
                f"{self.attention!r} leaves the mask to the model; use attention='sdpa' or 'eager'"
            )

    def _choose_attention(self, model: object) -> None:
        from quire.verify.isolation.attention_choice import choose_attention

        chosen = choose_attention(model, self.attention, self.windows, self.mask_dtype)
        object.__setattr__(self, "attention", chosen.attention)
        object.__setattr__(self, "windows", chosen.windows)
        object.__setattr__(self, "mask_dtype", chosen.mask_dtype)
        self._require_attention()

    def __call__(self, features: Sequence[Feature]) -> Batch:
        """The batch of these rows, which are not modified."""
        rows = self._reader.read(features, self.tokenizer, self.packed_sequences)
        if self.max_length is not None:
            rows = fit(rows, self.max_length, self.pad_documents_to, truncation=self.truncation)
        boundaries = self._boundaries(rows, rows.starts)
        layout = Layout.of(boundaries)
        tokens = layout.place(rows.tokens, pad_token_id(self.tokenizer))
        batch: Batch = {
            self.input_name: tokens,
            self.labels_name: layout.labels(rows, tokens, self._label_options),
        }
        packed = rows.came_with_starts if self.packed_sequences is None else self.packed_sequences
        if packed:
            batch["position_ids"] = boundaries.position_ids()
            batch |= self._attention_arguments(boundaries)
        elif self.attention not in (None, "transformers"):
            whole_rows = [one_document(row) for row in rows.tokens]
            batch |= self._attention_arguments(self._boundaries(rows, whole_rows))
        return as_batch(batch, self.return_tensors)

    def _boundaries(self, rows: Rows, starts: Sequence[npt.ArrayLike]) -> Boundaries:
        if self.padding in (False, "do_not_pad"):
            self._require_one_width(num_places(rows, self.pad_documents_to))
        width = self.max_length if self.padding == "max_length" else None
        return Boundaries.of_rows(starts, rows.lengths, width, self.pad_documents_to)

    def _require_one_width(self, needed: list[int]) -> None:
        if len(set(needed)) > 1:
            other = next(row for row, places in enumerate(needed) if places != needed[0])
            raise InvalidRow(
                f"row {other} needs {needed[other]} places and row 0 needs {needed[0]}, but "
                f"padding={self.padding!r} stacks rows without padding; use padding='longest'"
            )

    def _attention_arguments(self, boundaries: Boundaries) -> Batch:
        if self.attention is None:
            return {}
        if self.attention == "sdpa":
            return sdpa_arguments(boundaries, self.windows)
        if self.attention == "eager":
            return eager_arguments(boundaries, self.windows, self.mask_dtype)
        arguments = ATTENTION[self.attention](boundaries)
        if self.attention == "varlen" and self.pad_documents_to > 1:
            arguments |= padded_varlen_arguments(boundaries)
        return arguments

    @property
    def _label_options(self) -> LabelOptions:
        return LabelOptions(
            mask_boundary_loss=self.mask_boundary_loss,
            train_on_eos=self.train_on_eos,
            eos_token_id=eos_token_id(self.tokenizer),
            ignore_index=self.ignore_index,
        )

    def _require_lengths(self) -> None:
        multiple = require_multiple(self.pad_documents_to)
        if self.max_length is None:
            if self.truncation or self.padding == "max_length":
                raise InvalidOption(
                    f"truncation={self.truncation} and padding={self.padding!r} need max_length, "
                    "which is None; set the row length"
                )
        elif require_integer("max_length", self.max_length, 1) % multiple:
            fitting = self.max_length // multiple * multiple or multiple
            raise InvalidOption(
                f"max_length={self.max_length} is not a multiple of pad_documents_to={multiple}, "
                f"so a full row does not fit; use {fitting}"
            )
        if multiple > 1 and self.packed_sequences is False:
            raise InvalidOption(
                f"pad_documents_to={multiple} pads documents inside a row, but "
                "packed_sequences=False takes a row as one document; use only one of them"
            )
