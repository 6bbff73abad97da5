"""Vision-language samples as padded rows, one sample in each: for evaluation, or no packing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass

import numpy as np

from quire.boundaries import Boundaries
from quire.collate.layout import place
from quire.collate.rows import Feature, Ints
from quire.collate.special_tokens import SpecialTokens, pad_token_id
from quire.collate.tensors import Batch, require_return_tensors
from quire.collate.vision import VisionBatch, VisionPaddingFreeCollator, finished, labels_of, rules
from quire.collate.vision_mrope import MropeOptions
from quire.collate.vision_positions import VisionModel, positions_of
from quire.collate.vision_samples import Pack, as_packs, has_packs, read_samples
from quire.errors import InvalidRow


@dataclass(frozen=True)
class VisionPaddedCollator:
    """Makes `[B, T]` of samples, padded at their right ends, with an attention mask.

    `position_ids` are `(3, B, T)`, 0 on padding: what the model itself makes of such a batch.

    >>> collator = VisionPaddedCollator(return_tensors="np")
    >>> batch = collator([{"input_ids": [5, 6, 7]}, {"input_ids": [8, 9]}])
    >>> batch["input_ids"].tolist(), batch["attention_mask"].tolist()
    ([[5, 6, 7], [8, 9, 0]], [[1, 1, 1], [1, 1, 0]])
    """

    tokenizer: SpecialTokens | None = None
    """Asked for PAD; padding is known from lengths, so any id will do."""
    mrope: MropeOptions | None = None
    """As in `VisionPaddingFreeCollator`."""
    _: KW_ONLY
    model: VisionModel | None = None
    token_fields: tuple[str, ...] = ()
    ignore_index: int = -100
    return_tensors: str = "pt"
    """``pt`` or ``np``."""

    def __post_init__(self) -> None:
        require_return_tensors(self.return_tensors)

    def __call__(self, features: Sequence[Feature]) -> VisionBatch:
        """The batch of these samples, which stay as they were."""
        options = rules(self.mrope, self.model)
        samples = read_samples([_no_packs(features)], options, self.token_fields)
        lengths = samples.rows.lengths
        boundaries = Boundaries.of_rows([[0]] * len(lengths), lengths)

        def placed(columns: list[Ints]) -> Ints:
            return place(columns, boundaries, 0)

        axes = zip(*positions_of(samples, options, self.model), strict=True)
        batch: Batch = {
            "input_ids": place(samples.rows.tokens, boundaries, pad_token_id(self.tokenizer)),
            "labels": labels_of(samples, boundaries, placed, self.ignore_index),
            "attention_mask": (boundaries.segment_ids() > 0).astype(np.int64),
            "position_ids": np.stack([placed(list(axis)) for axis in axes]),
            "mm_token_type_ids": placed(samples.token_types),
            **{  # weights of tokens, say, are no integers
                name: place(column, boundaries, 0, np.result_type(*column))
                for name, column in samples.token_columns.items()
            },
            "use_cache": False,
        }
        return finished(batch, samples, self.return_tensors)


@dataclass(frozen=True)
class VisionCollator:
    """Makes a row of each pack, or pads samples, by what comes.

    A Trainer has one collator for training and evaluation: packed datasets give it lists of
    samples, others give it samples.

    >>> pad_or_lay = VisionCollator(
    ...     VisionPaddingFreeCollator(return_tensors="np"),
    ...     VisionPaddedCollator(return_tensors="np"),
    ... )
    >>> samples = [{"input_ids": [5, 6, 7]}, {"input_ids": [8, 9]}]
    >>> pad_or_lay([samples])["input_ids"].shape, pad_or_lay(samples)["input_ids"].shape
    ((1, 5), (2, 3))
    """

    packed: VisionPaddingFreeCollator
    padded: VisionPaddedCollator

    def __call__(self, features: Sequence[Feature | Pack]) -> VisionBatch:
        """The batch of these packs, or of these samples; nothing of packs that are empty.

        Empty packs stand for those that a resumed Trainer had before and discards.
        """
        packs = as_packs(features)
        if packs and not any(packs):
            return {}
        return self.packed(features) if has_packs(features) else self.padded(features)  # type: ignore[arg-type]


def _no_packs(features: Sequence[Feature]) -> Sequence[Feature]:
    for index, feature in enumerate(features):
        if not isinstance(feature, Mapping):
            raise InvalidRow(
                f"feature {index} is a {type(feature).__name__}, not a sample; packs go through "
                "VisionPaddingFreeCollator"
            )
    return features
