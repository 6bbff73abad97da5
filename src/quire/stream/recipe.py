"""What opens the same stream again and again, in any process."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from quire.errors import InvalidOption
from quire.stream.opening import checked_config, open_stream
from quire.stream.options import StreamConfig
from quire.stream.pipeline import Stream
from quire.stream.vocabulary import open_tokenizer, resolved
from quire.text import TokenizerLike


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamRecipe:
    """The arguments of `open_stream`; loaders send them to their workers."""

    options: StreamConfig
    rank: int = 0
    world_size: int = 1
    source: object | None = None
    tokenizer: TokenizerLike | None = None

    @classmethod
    def of(
        cls,
        config: StreamConfig | Mapping[str, Any] | str | os.PathLike[str],
        **given: Any,  # noqa: ANN401 - the other fields
    ) -> StreamRecipe:
        """The recipe from any form of a config; a file is read at once."""
        return cls(options=checked_config(config), **given)

    @property
    def config(self) -> StreamConfig:
        """The options with the vocabulary's size and special ids filled in."""
        return resolved(self.options, open_tokenizer(self.options, self.tokenizer))

    def without_thread(self) -> StreamRecipe:
        """The same batches, none of them made ahead in a thread."""
        data = replace(self.options.data, grain_prefetch=0)
        return replace(self, options=replace(self.options, data=data))

    def open(self) -> Stream:
        """The stream, if this process can do what the options say."""
        num_workers = self.options.data.num_workers
        if multiprocessing.current_process().daemon and num_workers:
            raise InvalidOption(
                f"data.num_workers is {num_workers} but a loader's worker may start no processes "
                "of its own; set it to 0, or the loader's num_workers"
            )
        return open_stream(
            self.options,
            rank=self.rank,
            world_size=self.world_size,
            source=self.source,
            tokenizer=self.tokenizer,
        )
