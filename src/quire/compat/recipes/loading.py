"""What recipes load and run: tokenizers and datasets from local files, and the map over them.

Every function takes the recipe's reach first, which says what it may read. Nothing is fetched,
nothing is written, and no code of a tokenizer or a dataset is run.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quire.compat.recipes.folder import Reach
from quire.errors import InvalidDocument, InvalidOption, missing_dependency, unknown_name
from quire.text import TokenizerLike, as_tokenizer

if TYPE_CHECKING:
    import datasets

_LOADERS = ("json", "parquet", "arrow", "text")
_MAX_PROCESSES = 128
_TOKENS = ("bos_token", "eos_token", "pad_token", "unk_token")


def load_tokenizer(reach: Reach, tokenizer: TokenizerLike) -> TokenizerLike:
    """The tokenizer: ``byte``, a local ``tokenizer.json`` or its folder, or an object as it is."""
    if tokenizer == "byte" or not isinstance(tokenizer, str | os.PathLike):
        return as_tokenizer(tokenizer) if tokenizer == "byte" else tokenizer
    return as_tokenizer(reach.path(tokenizer))


def load_pretrained_tokenizer(
    reach: Reach,
    pretrained_model_name_or_path: TokenizerLike,
    *,
    trust_remote_code: bool = False,
    **special: str,
) -> TokenizerLike:
    """A tokenizer of transformers from a local folder, with special tokens of one's own."""
    named = pretrained_model_name_or_path
    if named == "byte" or not isinstance(named, str | os.PathLike):
        return load_tokenizer(reach, named)
    for name in special:
        if name not in _TOKENS:
            raise unknown_name("argument", name, _TOKENS)
    if trust_remote_code:
        raise InvalidOption(
            "trust_remote_code lets a file run code; load the tokenizer in the program and pass it "
            "as a variable"
        )
    folder = reach.path(named)
    load_tokenizer(reach, folder)  # refuses a folder that asks for code of its own
    try:
        from transformers import AutoTokenizer
    except ModuleNotFoundError:
        raise missing_dependency("transformers", "AutoTokenizer.from_pretrained", "hf") from None
    return AutoTokenizer.from_pretrained(
        folder, local_files_only=True, trust_remote_code=False, **special
    )


def load_dataset(
    reach: Reach,
    path: Any,  # noqa: ANN401 - a loader's name, files, or a dataset as it is
    *,
    data_files: str | Sequence[str] | Mapping[str, str | Sequence[str]] | None = None,
    split: str = "train",
    feature: str = "text",
) -> datasets.Dataset:
    """The texts of local jsonl, parquet, Arrow and text files; a dataset comes back as it is."""
    if hasattr(path, "map"):
        return path
    if isinstance(path, Sequence) and path and isinstance(path[0], Mapping):
        return _as_dataset(list(path))
    named = data_files if path in _LOADERS else path
    if isinstance(named, Mapping):
        if split not in named:
            raise unknown_name("split", split, named)
        named = named[split]
    if not named or isinstance(named, int | float):
        raise InvalidOption(f"path is {path!r}, which names no file; give data_files")
    several = [named] if isinstance(named, str | os.PathLike) else list(named)
    files = [file for one in several for file in reach.files(one)]
    return _as_dataset([{feature: text} for text in _texts(files, feature)])


def _texts(files: list[Path], feature: str) -> list[str]:
    from quire.corpus.inputs import find_inputs
    from quire.corpus.options import MEBIBYTE, CorpusOptions
    from quire.corpus.readers import Span, read_span

    options = CorpusOptions(max_length=1, text_key=feature, partition_size=256 * MEBIBYTE)
    texts: list[str] = []
    for file in find_inputs(files):
        span = Span(file=file.number, start=0, stop=None, first_record=0, size=file.size)
        for batch in read_span(file, span, options, {}):
            for bad in batch.bad:
                raise InvalidDocument(f"{file.path}: record {bad.record} {bad.reason}; mend it")
            texts += batch.values
    return texts


def _as_dataset(records: list[dict[str, Any]]) -> datasets.Dataset:
    try:
        import datasets
    except ModuleNotFoundError:
        raise missing_dependency("datasets", "a recipe's dataset", "hf") from None
    return datasets.Dataset.from_list(records)


def preprocess_dataset(
    reach: Reach,
    dataset: datasets.Dataset,
    map_fn: Callable[..., Any],
    *,
    tokenizer: TokenizerLike | None = None,
    feature: str = "text",
    fn_kwargs: Mapping[str, Any] | None = None,
    batched: bool = True,
    batch_size: int = 1000,
    num_proc: int | None = None,
    shuffle: bool = False,
    seed: int = 42,
    desc: str | None = None,
) -> datasets.Dataset:
    """The rows that the map function makes of a dataset, in memory.

    The function gets ``tokenizer`` and ``feature`` if it takes them and has none; ``fn_kwargs`` say
    again what the function was given, and win.
    """
    if not hasattr(dataset, "column_names"):
        raise InvalidOption(f"{type(dataset).__name__} is no dataset of the package datasets")
    if num_proc is not None and not 1 <= num_proc <= _MAX_PROCESSES:
        raise InvalidOption(f"num_proc is {num_proc} but must be from 1 to {_MAX_PROCESSES}")
    function = _bound(map_fn, {"tokenizer": tokenizer, "feature": feature}, dict(fn_kwargs or {}))
    if isinstance(function.keywords.get("tokenizer"), str):
        function.keywords["tokenizer"] = load_tokenizer(reach, function.keywords["tokenizer"])
    if shuffle:
        dataset = dataset.shuffle(seed=seed, keep_in_memory=True)
    return dataset.map(
        function,
        batched=batched,
        batch_size=batch_size,
        num_proc=num_proc,
        remove_columns=dataset.column_names,
        keep_in_memory=True,
        desc=desc,
    )


def _bound(
    function: Callable[..., Any], offered: Mapping[str, Any], said: dict[str, Any]
) -> functools.partial[Any]:
    parameters = inspect.signature(function).parameters
    taken = getattr(function, "keywords", {})
    wanted = {
        name: value
        for name, value in offered.items()
        if name in parameters and name not in taken and value is not None
    }
    for name in said:
        if name not in parameters:
            raise unknown_name("argument", name, parameters)
    return functools.partial(function, **(wanted | said))


def finish_collator(
    reach: Reach,
    collator: Callable[..., Any],
    tokenizer: TokenizerLike,
) -> Callable[..., Any]:
    """The collator, which a ``!partial`` becomes once it has the tokenizer."""
    if not isinstance(collator, functools.partial):
        return collator
    given = {} if "tokenizer" in collator.keywords else {"tokenizer": tokenizer}
    made: Callable[..., Any] = collator(**given)
    return made
