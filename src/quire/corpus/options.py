"""The options that decide the bytes of a packed corpus."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from typing import Any

from quire.errors import InvalidOption
from quire.formats.images import MOST_PIXELS
from quire.formats.record_kinds import VISION, WITH_IMAGES
from quire.options import (
    TEXT_ONLY,
    Count,
    EncodeOptions,
    PackOptions,
    Positive,
    Seed,
    Size,
    SourceOptions,
)
from quire.options.names import option, setting
from quire.plan import require_plannable

MEBIBYTE = 1 << 20
ROW_OPTIONS = tuple(field.name for field in fields(PackOptions))
"""The options that shape rows; the others decide what the documents are."""
IMAGE_OPTIONS = (
    *("images_column", "max_images", "max_patches", "embed_images", "max_image_pixels"),
    *("image_token_id", "merge_size"),
)
"""The options that only records with images have."""

TEXT_OPTIONS = (*TEXT_ONLY, "drop_longer_than")
"""The options that only text has, not given tokens or answers."""
IN_EVERY_MANIFEST = frozenset(
    (
        *("max_length", "max_documents_per_row", "strategy", "overlong", "stride", "min_length"),
        *("min_fragment", "shuffle", "seed", "add_bos", "add_eos", "drop_longer_than"),
        *("truncate_at", "text_column", "record_kind", "messages_column", "tools_column"),
        *("assistant_only", "chat_date", "pretokenized", "tokens_column", "columns"),
        *("keep_sources", "index_only", "partition_size", "max_record_bytes", *IMAGE_OPTIONS),
    )
)
"""Options that are recorded where they have an effect. Any other one was added later and is
recorded only if it is set, so that the header of an output without it stays the same."""


@dataclass(frozen=True, kw_only=True)
class CorpusOptions(SourceOptions, EncodeOptions, PackOptions):
    """How rows become shards."""

    seed: Seed = 0
    """Seeds the order of rows."""
    keep_sources: bool = True
    """Write ``document_ids`` and ``document_offsets``: where each fragment comes from."""
    index_only: bool = False
    """Write tokenized documents and a plan of their rows instead of rows; quire replan then makes
    other rows in seconds."""
    images_column: str = "images"
    """The column that holds the images of vision records: paths, bytes, or structs of both."""
    max_images: Positive | None = None
    """The most images in a row. None: no limit."""
    max_patches: Positive | None = None
    """The most vision patches (rows of pixel_values) in a row. None: no limit."""
    embed_images: bool = False
    """Copy image files into the shards; otherwise shards hold their paths and SHA-256."""
    max_image_pixels: Positive = MOST_PIXELS
    """A record with a larger image is a bad record."""
    image_token_id: Count | None = None
    """The placeholder of images in tokens. None: the tokenizer's <|image_pad|>, or
    mm_token_type_ids."""
    merge_size: Positive = 2
    """One placeholder represents a square of this many patches on each side."""
    pattern: str | None = None
    """Which files of a folder are read, such as '*.py' or 'docs/**/*.rst'; any suffix without a
    format is read as text. None: those of known formats, without .json, .md and .py."""
    partition_size: Size | None = None
    """Bytes of text that are packed together. None: a sixteenth of the inputs, from 4M to 256M."""
    max_record_bytes: Size = 256 * MEBIBYTE
    """A longer record is a bad record."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_plannable(self)
        self._require_one_kind()
        if self.index_only and not self.keep_sources:
            raise InvalidOption(
                "an index-only output always records where fragments come from; leave "
                f"{option('keep_sources')} on"
            )

    @property
    def has_images(self) -> bool:
        """Whether records are samples with images, which are never cut."""
        return self.record_kind in WITH_IMAGES

    def require_possible(self) -> None:
        """Raise for options that the kind of the records, now known, does not have."""
        if not self.has_images:
            self.require_unset(f"images ({setting('record_kind', 'vision')})", *IMAGE_OPTIONS)
            return
        for name, value, least in (("stride", self.stride, 0), ("align", self.align, 1)):
            if value != least:
                raise InvalidOption(f"samples with images are never cut; leave {option(name)} out")
        if self.overlong not in ("split", "drop", "error") or self.strategy == "wrapped":
            name = "strategy" if self.strategy == "wrapped" else "overlong"
            raise InvalidOption(
                f"{setting(name, getattr(self, name))} would cut samples with images; drop those "
                f"that do not fit ({setting('overlong', 'drop')}), or leave {option(name)} out"
            )
        if self.has_budgets and self.strategy not in ("exact_fit", "tight"):
            raise InvalidOption(
                f"{setting('strategy', self.strategy)} looks only at tokens; with "
                f"{option('max_images')} or {option('max_patches')} use exact_fit or tight"
            )
        if self.index_only:
            raise InvalidOption(
                f"plans of documents hold no images; leave {option('index_only')} out"
            )

    @property
    def has_budgets(self) -> bool:
        """Whether rows are limited in more than tokens and documents."""
        return self.max_images is not None or self.max_patches is not None

    def _require_one_kind(self) -> None:
        if not self.pretokenized:
            self.require_unset(f"tokens ({option('pretokenized')})", "columns")
        if self.pretokenized or self.has_answers:
            self.require_unset("text", *TEXT_OPTIONS)
        if self.index_only and self.record_kind == "preference":
            raise InvalidOption(
                f"preference pairs share a row, which plans of documents do not know; leave "
                f"{option('index_only')} out"
            )

    @property
    def batch_bytes(self) -> int:
        """Text that is encoded at once: enough for a tokenizer's threads, a part of a partition."""
        return max(1, min(16 * MEBIBYTE, self.partition_bytes // 16))

    @property
    def partition_bytes(self) -> int:
        """The size of a partition, once it is known."""
        if self.partition_size is None:
            raise InvalidOption("partition_size is not known before the inputs are prepared")
        return self.partition_size

    def row_options(self) -> dict[str, object]:
        """The options that shape rows, as the manifest records them."""
        recorded = self.to_dict()
        return {name: recorded[name] for name in ROW_OPTIONS if name in recorded}

    @classmethod
    def with_defaults(cls, recorded: Mapping[str, Any]) -> dict[str, Any]:
        """Recorded options, with the default of each one that is missing.

        An option is missing if it had no effect, or did not exist when the output was begun.

        >>> CorpusOptions.with_defaults({"max_length": 8})["align"]
        1
        """
        known = {field.name: field.default for field in fields(cls)}
        defaults = {name: value for name, value in known.items() if value is not MISSING}
        return {**defaults, **recorded}

    def to_dict(self) -> dict[str, object]:
        """Plain values, as the manifest records them: options without effect are left out."""
        defaults = {field.name: field.default for field in fields(self)}
        plain = {
            name: value
            for name, value in asdict(self).items()
            if name in IN_EVERY_MANIFEST or value != defaults[name]
        }
        plain.pop("tokenizer_engine", None)  # all give the same ids
        plain.pop("pattern", None)  # the manifest lists the files
        if not self.has_answers:
            del plain["tools_column"], plain["chat_date"]
        if self.record_kind in (None, "text", "messages", "tokens"):
            del plain["record_kind"]  # the other options say it
        if not self.has_images:
            for name in IMAGE_OPTIONS:
                del plain[name]
        if not self.pretokenized and self.record_kind != VISION:
            del plain["tokens_column"]
        return {**plain, "columns": None if self.columns is None else list(self.columns)}
