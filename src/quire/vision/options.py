"""Options of vision-language packing: the names under ``training.``, the template they set, and
the rules they become.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from quire.errors import InvalidOption
from quire.options import Count, Number, Positive, Seed, require_integer, validate
from quire.plan.lengths import MOST_TOKENS, BoolArray, IntArray

Scope: TypeAlias = Literal["auto", "buffer", "epoch"]
Template = TypeVar("Template")
"""ms-swift's, or an object with the same attributes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class VisionPackingOptions:
    """How samples are packed, under the names of ms-swift and transformers.

    >>> VisionPackingOptions(packing=True).packing_min_fill_ratio
    0.65
    >>> VisionPackingOptions(packing_length=0)
    Traceback (most recent call last):
    quire.errors.InvalidOption: packing_length is 0 but must be an integer >= 1
    """

    packing: bool = False
    """Whether training samples are packed."""
    packing_length: Positive | None = None
    """The most tokens in a pack; null: the template's ``max_length``."""
    packing_buffer: Positive = 512
    """Samples grouped at a time, when packing buffer by buffer."""
    packing_min_fill_ratio: Annotated[float, Number(above=0, most=1)] = 0.65
    """Groups below this fill ratio wait for the next buffer, at most twice."""
    packing_drop_last: bool = True
    """Drop and count the last group of an epoch if it is below the fill ratio."""
    packing_allow_single_long: bool = True
    """Give a sample of ``packing_length`` tokens or more a pack of its own; false: skip it."""
    packing_scope: Scope = "auto"
    """What is grouped together: a ``buffer``, or the whole ``epoch`` of a rank, which requires
    known lengths and random access; ``auto`` uses the epoch where that is possible and a pack has
    several limits, else the buffer."""
    packing_max_images: Positive | None = None
    """The most images and videos in a pack."""
    packing_max_patches: Positive | None = None
    """The most vision patches (rows of ``pixel_values``) in a pack."""
    packing_max_documents: Positive | None = None
    """The most samples in a pack."""
    eval_packing: bool = False
    """Whether evaluation samples are packed too."""
    global_max_length: Positive | None = None
    """Sets the template's ``max_length`` if given."""
    max_bad_records: Count = 0
    """Malformed samples that are skipped and counted in an epoch before one raises an error."""
    per_device_train_batch_size: Positive | None = None
    """Sets the Trainer's batch size if given; with packing it becomes 1."""
    gradient_accumulation_steps: Positive | None = None
    """Sets the Trainer's accumulation steps if given."""
    seed: Seed = 0
    """Seeds the order of packs when a whole epoch is grouped; `FusionDataset` has its own seed."""

    def __post_init__(self) -> None:
        validate(self)

    def pack_length(self, template: object = None) -> int:
        """The most tokens in a pack: as given, or else the template's ``max_length``.

        >>> VisionPackingOptions(global_max_length=4096).pack_length()
        4096
        """
        for name in ("packing_length", "global_max_length"):
            if (length := getattr(self, name)) is not None:
                return _possible(name, length)
        return _template_length(template)

    def rules(self, template: object = None) -> PackRules:
        """The options in the words of the rest of quire, with the pack length resolved."""
        return PackRules(
            max_length=self.pack_length(template),
            max_images=self.packing_max_images,
            max_patches=self.packing_max_patches,
            max_documents_per_row=self.packing_max_documents,
            overlong="keep" if self.packing_allow_single_long else "drop",
            buffer_size=self.packing_buffer,
            min_fill=self.packing_min_fill_ratio,
            drop_last=self.packing_drop_last,
        )


def prepare_template(template: Any, options: VisionPackingOptions) -> None:  # noqa: ANN401
    """Set ``packing``, ``padding_free`` and, with ``global_max_length``, ``max_length``."""
    if options.global_max_length is not None:
        template.max_length = options.global_max_length
    template.packing = True
    template.padding_free = True


def evaluation_template(template: Template) -> Template:
    """A copy for batches that are padded and not packed; the original keeps its flags.

    >>> from types import SimpleNamespace
    >>> training = SimpleNamespace(packing=True, padding_free=True, max_length=8)
    >>> evaluation_template(training), training.packing
    (namespace(packing=False, padding_free=False, max_length=8), True)
    """
    unpacked: Any = copy.copy(template)
    unpacked.packing = False
    unpacked.padding_free = False
    return unpacked  # type: ignore[no-any-return]


TRAINER_OPTIONS = (
    "packing",
    "eval_packing",
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
)
"""Options that do not affect the packs of a dataset."""


@dataclass(frozen=True, kw_only=True, slots=True)
class VisionConfig:
    """A config file whose section ``training`` configures packing."""

    training: VisionPackingOptions = field(default_factory=VisionPackingOptions)


@dataclass(frozen=True, kw_only=True, slots=True)
class PackRules:
    """Limits of a pack, and when a group of samples leaves the buffer. A limit of None is no limit.

    >>> PackRules(max_length=4096, max_images=8).measures
    ('tokens', 'images')
    """

    max_length: int
    max_images: int | None = None
    max_patches: int | None = None
    max_documents_per_row: int | None = None
    overlong: Literal["keep", "drop"] = "keep"
    """What happens to a sample that cannot share a pack: a pack of its own, or it is dropped."""
    buffer_size: int = 512
    min_fill: float = 0.65
    drop_last: bool = True

    @property
    def measures(self) -> tuple[str, ...]:
        """What is measured of every sample."""
        limited = {"images": self.max_images, "patches": self.max_patches}
        return ("tokens", *(name for name, limit in limited.items() if limit is not None))

    @property
    def limits(self) -> tuple[int, ...]:
        """The most of each measure in a pack."""
        limits = (self.max_length, self.max_images, self.max_patches)
        return tuple(limit for limit in limits if limit is not None)

    @property
    def named_limits(self) -> dict[str, int]:
        """All limits of a pack by what they limit.

        >>> PackRules(max_length=4096, max_documents_per_row=9).named_limits
        {'tokens': 4096, 'samples': 9}
        """
        named = dict(zip(self.measures, self.limits, strict=True))
        cap = self.max_documents_per_row
        return named if cap is None else named | {"samples": cap}

    @property
    def has_several_limits(self) -> bool:
        """Whether anything besides tokens is limited."""
        return len(self.measures) > 1 or self.max_documents_per_row is not None

    @property
    def lengths_needed(self) -> str:
        """What the caller must provide so that packs are known before samples are read.

        >>> PackRules(max_length=8).lengths_needed
        "lengths=, or a column 'length'"
        >>> PackRules(max_length=8, max_images=2).lengths_needed
        "lengths={'tokens': ..., 'images': ...}, or columns 'length' and 'image_grid_thw'"
        """
        if len(self.measures) == 1:
            return "lengths=, or a column 'length'"
        columns = ", ".join(f"{name!r}: ..." for name in self.measures)
        return f"lengths={{{columns}}}, or columns 'length' and 'image_grid_thw'"

    def oversized(self, sizes: IntArray) -> BoolArray:
        """Which samples cannot share a pack: as long as a pack, or over another limit.

        >>> PackRules(max_length=8, max_images=2).oversized(np.array([[7, 2], [8, 0], [3, 3]]))
        array([False,  True,  True])
        """
        over: BoolArray = np.any(sizes > np.asarray(self.limits), axis=1)
        return over | (sizes[:, 0] >= self.max_length)

    def drop_reason(self, sizes: Sequence[int]) -> str | None:
        """Why a sample of these sizes goes into no pack; None if it does go into one."""
        if not sizes[0]:
            return "empty"
        if self.overlong == "keep":
            return None
        return "skipped_oversized" if self.oversized(np.array([sizes]))[0] else None

    def fills(self, used: IntArray, num_documents: IntArray) -> npt.NDArray[np.float64]:
        """Fill ratio of packs in the measure that is closest to its limit.

        >>> PackRules(max_length=10, max_images=2).fills(np.array([[3, 2], [6, 1]]), np.ones(2))
        array([1. , 0.6])
        """
        fills: npt.NDArray[np.float64] = np.max(used / np.asarray(self.limits), axis=1)
        if self.max_documents_per_row is None:
            return fills
        return np.maximum(fills, num_documents / self.max_documents_per_row)


def _template_length(template: object) -> int:
    length = getattr(template, "max_length", None)
    if length is None:
        raise InvalidOption(
            "packing_length is null and the template has no max_length to use instead; set "
            "packing_length or global_max_length"
        )
    name = "packing_length (the template's max_length)"
    return _possible(name, require_integer(name, length, 1))


def _possible(name: str, length: int) -> int:
    # A tokenizer without a limit reports 10**30, and templates copy that.
    if length > MOST_TOKENS:
        raise InvalidOption(
            f"{name} is {length} but can be at most {MOST_TOKENS}; set packing_length to what the "
            "model and its memory can hold"
        )
    return length
