"""Tokenizers that are named as on the Hugging Face hub, such as ``Qwen/Qwen3-8B``."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from quire.errors import SourceError, missing_dependency
from quire.storage.hub import endpoint, hub_away, is_hub_name, is_offline, is_reachable

_FILES = ("tokenizer*", "special_tokens_map.json", "chat_template*", "vocab*", "merges.txt")


def local_tokenizer(named: Any) -> Any:  # noqa: ANN401 - any tokenizer
    """The folder of a tokenizer that is named as on the hub; anything else as it is."""
    return _downloaded(named) if is_hub_name(named) else named


@lru_cache(maxsize=16)
def _downloaded(name: str) -> str:
    """The folder of the tokenizer's files: those of the hub, or kept from before if it is away."""
    try:
        from huggingface_hub import snapshot_download
    except ModuleNotFoundError:
        raise missing_dependency("huggingface_hub", f"the tokenizer {name!r}", "hf") from None
    here_only = is_offline() or not is_reachable()
    try:
        return str(
            snapshot_download(
                name, allow_patterns=[*_FILES], endpoint=endpoint(), local_files_only=here_only
            )
        )
    except Exception as error:  # of the client, which has many
        if here_only:
            raise hub_away(f"the tokenizer {name!r} is not on this machine") from error
        reason = str(error).partition("\n")[0]
        raise SourceError(
            f"the tokenizer {name!r} cannot be fetched from {endpoint()}: {reason}; check its "
            "name and your login, or give the path of a folder"
        ) from error
