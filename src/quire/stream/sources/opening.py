"""The source that options name, or that was given as an object."""

from __future__ import annotations

from typing import cast

from quire.errors import InvalidOption
from quire.stream.options import SourceOptions
from quire.stream.sources.files import FileShards
from quire.stream.sources.local_text import LocalText
from quire.stream.sources.shards import Shards


def open_source(options: SourceOptions, given: object | None = None) -> Shards:
    """The shards to read; ``given`` is an `IterableDataset` or a source of one's own."""
    if given is not None:
        return _as_shards(given, options.text_key)
    if options.backend == "files":
        if not options.files:
            raise InvalidOption("data.files is empty but backend files needs at least one pattern")
        return FileShards(options.files, options.text_key)
    if options.backend == "local_text":
        if options.local_text is None:
            raise InvalidOption("data.local_text is null but backend local_text needs a string")
        return LocalText(options.local_text)
    from quire.stream.sources.hub import load_hub

    return load_hub(options)


def _as_shards(given: object, text_key: str) -> Shards:
    if hasattr(given, "state_dict") and hasattr(given, "load_state_dict"):
        from quire.stream.sources.hub import HubShards

        return HubShards(given, text_key)
    if hasattr(given, "names") and hasattr(given, "open"):
        return cast(Shards, given)
    raise InvalidOption(
        f"source is a {type(given).__name__} but must be a datasets.IterableDataset, or have "
        "names and open(number, cursor) as quire.stream.Shards says"
    )
