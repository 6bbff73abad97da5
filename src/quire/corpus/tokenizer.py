"""The tokenizer of a corpus, and the options that depend on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from quire.corpus.options import CorpusOptions
from quire.errors import InvalidOption
from quire.storage import as_path, is_uri
from quire.text import TokenizerLike, as_tokenizer
from quire.text.chat.date import today
from quire.text.chat.template import as_chat_tokenizer, asks_for_date
from quire.text.tokenizer import adds_bos


def load_tokenizer(named: TokenizerLike | None, options: CorpusOptions) -> TokenizerLike | None:
    """What encodes the corpus; None if records hold tokens and no tokenizer is named."""
    if named is None:
        if options.pretokenized:
            return None
        raise InvalidOption(
            "text needs a tokenizer; pass 'byte' or the path of one (records that hold tokens "
            f"under {options.tokens_column!r} need none)"
        )
    if isinstance(named, str) and is_uri(named):
        raise InvalidOption(
            f"the tokenizer {as_path(named)} is in a store, but must be on the local disk\n"
            "fetch it, and pass its path"
        )
    return as_tokenizer(named) if options.messages_column is None else as_chat_tokenizer(named)


def settled(
    options: CorpusOptions, loaded: TokenizerLike | None, recorded: Mapping[str, Any] | None = None
) -> CorpusOptions:
    """The options with ``add_bos`` and ``chat_date`` filled in.

    Values that an existing output ``recorded`` are kept. Otherwise BOS is added to text if the
    tokenizer adds it itself, and never to given or rendered tokens; the date is today's if a chat
    template asks for it, and stays unset if none does.
    """
    if options.add_bos is None and isinstance((recorded or {}).get("add_bos"), bool):
        options = replace(options, add_bos=(recorded or {})["add_bos"])
    elif options.add_bos is None:
        is_text = loaded is not None and not options.pretokenized and not options.messages_column
        options = replace(options, add_bos=is_text and adds_bos(as_tokenizer(loaded)))
    if options.messages_column is None or options.chat_date or not asks_for_date(loaded):
        return options
    return replace(options, chat_date=(recorded or {}).get("chat_date") or today())


def chat_template_of(loaded: TokenizerLike | None) -> dict[str, object]:
    """What the manifest records of the chat template; nothing if there is none."""
    template = getattr(loaded, "chat_template", None)
    return {} if template is None else {"chat_template": template}
