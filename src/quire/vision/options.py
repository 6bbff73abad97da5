"""The options of vision-language packing, declared once, with their names under ``training.``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal, TypeAlias

from quire.errors import InvalidOption
from quire.options import Count, Number, Positive, Seed, require_integer, validate
from quire.plan.lengths import MOST_TOKENS

Scope: TypeAlias = Literal["auto", "buffer", "epoch"]


@dataclass(frozen=True, kw_only=True, slots=True)
class VisionPackingOptions:
    """How samples become packs.

    >>> VisionPackingOptions(packing=True).packing_min_fill_ratio
    0.65
    >>> VisionPackingOptions(packing_length=0)
    Traceback (most recent call last):
    quire.errors.InvalidOption: packing_length is 0 but must be an integer >= 1
    """

    packing: bool = False
    """Whether training samples are packed."""
    packing_length: Positive | None = None
    """The most tokens in a pack; null takes the template's ``max_length``."""
    packing_buffer: Positive = 512
    """Samples that are grouped together, where they are grouped by the buffer."""
    packing_min_fill_ratio: Annotated[float, Number(above=0, most=1)] = 0.65
    """Groups that are emptier wait for the next buffer, twice at most."""
    packing_drop_last: bool = True
    """Whether the epoch's last group is dropped, and counted, when it is emptier than that."""
    packing_allow_single_long: bool = True
    """Whether a sample of ``packing_length`` tokens or more is a pack of its own, or is skipped."""
    packing_scope: Scope = "auto"
    """What is grouped together: a ``buffer``, or the whole ``epoch`` of a rank, which needs known
    lengths and samples by number; ``auto`` is the epoch where that is so and a pack has several
    limits, else the buffer."""
    packing_max_images: Positive | None = None
    """The most images and videos in a pack."""
    packing_max_patches: Positive | None = None
    """The most vision patches (rows of ``pixel_values``) in a pack."""
    packing_max_documents: Positive | None = None
    """The most samples in a pack."""
    eval_packing: bool = False
    """Whether evaluation is packed, too."""
    global_max_length: Positive | None = None
    """The template's ``max_length``, where this is to set it."""
    max_bad_records: Count = 0
    """Malformed samples of an epoch that may be left out and counted before one is an error."""
    per_device_train_batch_size: Positive | None = None
    """The Trainer's batch size, where this is to set it; with packing it becomes 1."""
    gradient_accumulation_steps: Positive | None = None
    """The Trainer's accumulation steps, where this is to set them."""
    seed: Seed = 0
    """Decides the order of packs where a whole epoch is grouped; `FusionDataset` takes its own."""

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


OF_THE_TRAINER = (
    "packing",
    "eval_packing",
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
)
"""Options that decide nothing about the packs of a dataset."""


@dataclass(frozen=True, kw_only=True, slots=True)
class VisionConfig:
    """A config file of which the section ``training`` is about packing."""

    training: VisionPackingOptions = field(default_factory=VisionPackingOptions)


def _template_length(template: object) -> int:
    length = getattr(template, "max_length", None)
    if length is None:
        raise InvalidOption(
            "packing_length is null and the template has no max_length to take its place; set "
            "packing_length or global_max_length"
        )
    name = "packing_length (the template's max_length)"
    return _possible(name, require_integer(name, length, 1))


def _possible(name: str, length: int) -> int:
    # A tokenizer without a limit says 10**30, and templates take that over.
    if length > MOST_TOKENS:
        raise InvalidOption(
            f"{name} is {length} but at most {MOST_TOKENS} is possible; set packing_length to what "
            "the model and its memory hold"
        )
    return length
