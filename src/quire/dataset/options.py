"""The options of `pack_dataset`."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from quire.errors import InvalidOption
from quire.options import Count, EncodeOptions, PackOptions, SourceOptions
from quire.plan import require_plannable
from quire.text import TokenizerLike


@dataclass(frozen=True)
class DatasetOptions(SourceOptions, EncodeOptions, PackOptions):
    """How a dataset is read and packed."""

    tokenizer: TokenizerLike | None = None
    """What turns text into tokens; for tokens, it says which ids there are."""
    _: KW_ONLY
    group_column: str | None = None
    """Documents with equal values in this column are packed into the same row."""
    keep_sources: bool = False
    """Add ``document_ids`` and ``document_offsets``: where each fragment comes from."""
    position_ids: bool = False
    """Add positions that restart with every document: transformers' Trainer keeps this column."""
    seq_lengths: bool = False
    """Add the lengths of the documents: TRL's SFTTrainer keeps this column and reads it."""
    max_bad_records: Count = 0
    """Records that may be left out and counted before a bad one is an error."""
    progress: bool | None = None
    """Show a progress bar. None: if stderr is a terminal."""
    return_ledger: bool = False
    """Return the ledger beside the rows."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_plannable(self)
        if self.group_column is not None and self.record_kind == "preference":
            raise InvalidOption(
                "the two answers of a preference share a row already; leave group_column out"
            )
