"""What decides the bytes of a packed corpus; how it is run is decided elsewhere."""

from __future__ import annotations

import datetime
from dataclasses import asdict, dataclass

from quire.errors import InvalidOption
from quire.formats.fields import TOOLS
from quire.formats.token_columns import TOKENS
from quire.options import Count, Positive, Seed, Size, validate
from quire.plan import PlanOptions, keeps_order
from quire.plan.options import Overlong
from quire.text import EncodeOptions
from quire.text.chat.date import as_chat_date
from quire.text.option_words import words_of_packing

MEBIBYTE = 1 << 20
ROW_OPTIONS = (
    *("max_length", "strategy", "overlong", "stride", "min_length", "min_fragment"),
    *("max_documents_per_row", "shuffle", "seed"),
)
"""The options that shape rows; the others decide what the documents are."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CorpusOptions:
    """How records become documents, documents rows, and rows shards."""

    max_length: Positive
    """Places in a row."""
    strategy: str = "best_fit"
    overlong: Overlong = "split"
    text_column: str = "text"
    """The field that holds the text."""
    messages_column: str | None = None
    """The field that holds a conversation for the tokenizer's chat template."""
    tools_column: str | None = TOOLS
    """The field that holds the tools of a conversation; None leaves them out."""
    assistant_only: bool = True
    """Train only what the assistant says."""
    chat_date: datetime.date | str | None = None
    """The date, in ISO form, that a chat template gets when it asks for one; None: today's, fixed
    when packing begins, recorded in the manifest and kept by ``resume``."""
    pretokenized: bool = False
    """Records hold tokens, used as they are; recognised if no tokenizer is given."""
    tokens_column: str = TOKENS
    """The field that holds the tokens."""
    columns: tuple[str, ...] | None = None
    """Per-token columns that go along with ``input_ids``; None takes those of the first record."""
    stride: Count = 0
    min_length: Positive = 1
    """Rows with fewer tokens are dropped and counted."""
    drop_longer_than: Positive | None = None
    """Documents with more tokens are dropped and counted."""
    min_fragment: Positive = 1
    max_documents_per_row: Positive | None = None
    add_bos: bool | None = None
    """Open every fragment with BOS; None: if the tokenizer itself adds it, as is then recorded."""
    add_eos: bool = True
    truncate_at: str | None = None
    shuffle: bool | None = None
    """Shuffle the rows of each shard; None: unless the strategy keeps their order."""
    seed: Seed = 0
    keep_sources: bool = True
    """Write ``document_ids`` and ``document_offsets``: where each fragment comes from."""
    index_only: bool = False
    """Write documents and a plan of all their rows, to be planned again without tokenising."""
    partition_size: Size | None = None
    """About how many bytes of text are packed together; None: a sixteenth of the inputs, from 4 to
    256 MiB."""
    max_record_bytes: Size = 256 * MEBIBYTE
    """A longer record is a bad one."""

    def __post_init__(self) -> None:
        validate(self)
        self.encode_options()
        with words_of_packing():
            self.plan_options(0)
        self._require_names()
        self._require_one_kind()
        if self.index_only and not self.keep_sources:
            raise InvalidOption(
                "an index-only output always says where fragments come from; leave keep_sources on"
            )

    def _require_names(self) -> None:
        date = as_chat_date(self.chat_date)
        object.__setattr__(self, "chat_date", date and date.isoformat())

    def _require_one_kind(self) -> None:
        if self.pretokenized and self.messages_column is not None:
            raise InvalidOption("a record holds input_ids or messages: give one of the two")
        if self.columns is not None and not self.pretokenized:
            raise InvalidOption("columns go along with tokens that are given: say pretokenized")
        if self.messages_column is None and self.tools_column not in (TOOLS, None):
            raise InvalidOption("tools_column goes along with messages: name messages_column too")
        if self.messages_column is None and self.chat_date is not None:
            raise InvalidOption("chat_date goes along with messages: name messages_column too")
        taken = self.pretokenized or self.messages_column is not None
        if taken and (self.truncate_at is not None or self.drop_longer_than is not None):
            raise InvalidOption("truncate_at and drop_longer_than are for text; leave them out")

    def encode_options(self) -> EncodeOptions:
        """The part that the encoder takes."""
        return EncodeOptions(
            add_bos=self.add_bos,
            add_eos=self.add_eos,
            drop_longer_than=self.drop_longer_than,
            truncate_at=self.truncate_at,
        )

    def plan_options(self, seed: int) -> PlanOptions:
        """The part that the planner takes."""
        return PlanOptions(
            max_length=self.max_length,
            strategy=self.strategy,
            overlong=self.overlong,
            stride=self.stride,
            min_length=self.min_length,
            min_fragment=self.min_fragment,
            max_documents_per_row=self.max_documents_per_row,
            shuffle=not keeps_order(self.strategy) if self.shuffle is None else self.shuffle,
            seed=seed,
        )

    @property
    def batch_bytes(self) -> int:
        """Text that is encoded at once: enough for a tokenizer's threads, a part of a partition."""
        return max(1, min(16 * MEBIBYTE, self.partition_bytes // 16))

    @property
    def partition_bytes(self) -> int:
        """The size of a partition, once it is known."""
        if self.partition_size is None:
            raise InvalidOption("partition_size is open until the inputs are known; prepare them")
        return self.partition_size

    def row_options(self) -> dict[str, object]:
        """The options that shape rows, as plain values."""
        return {name: getattr(self, name) for name in ROW_OPTIONS}

    def to_dict(self) -> dict[str, object]:
        """Plain values, as they stand in the manifest."""
        plain = asdict(self)
        if self.messages_column is None:
            del plain["tools_column"], plain["chat_date"]
        if not self.pretokenized:
            del plain["tokens_column"]
        return {**plain, "columns": None if self.columns is None else list(self.columns)}
