"""What recipes load and run: tokenizers and datasets from local files, and the map over them.

Every function takes a `FileAccess` first, which decides what it may read. Nothing is downloaded or
written, and no code that comes with a tokenizer or a dataset is run.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from quire.compat.recipes.errors import UnlocatedError
from quire.errors import InvalidDocument, InvalidOption, missing_dependency, unknown_name
from quire.text import TokenizerLike, as_tokenizer

if TYPE_CHECKING:
    import datasets

_LOADERS = ("json", "parquet", "arrow", "text")
_MAX_PROCESSES = 128
_TOKENS = ("bos_token", "eos_token", "pad_token", "unk_token")


class FileAccess:
    """The files that a recipe may read.

    Those in its own folder, in the folders that the caller allows, and at the paths that the caller
    passed as variables. A relative string is relative to the recipe's folder, a relative `Path` to
    the working directory.
    """

    def __init__(
        self,
        folder: Path,
        allowed: Iterable[str | os.PathLike[str]] = (),
        variables: Mapping[str, object] | None = None,
    ) -> None:
        self._folder = folder
        values = list((variables or {}).values())
        values += [item for value in values if isinstance(value, list | tuple) for item in value]
        named = [*(Path(one) for one in allowed), *values]
        self._roots = [folder, *(self._path(one).resolve() for one in named if _is_path(one))]

    def files(self, named: str | os.PathLike[str]) -> list[Path]:
        """The file with this name, or the files that match a pattern, sorted."""
        path = self._path(named)
        is_given = path.resolve() in self._roots[1:]
        if path.is_dir() and not is_given:  # it may contain links that lead out
            raise UnlocatedError(f"{named} is a folder", f"name its files, such as {named}/*.jsonl")
        if path.exists() or not _is_pattern(path):
            return [self.path(path)]
        if ".." in path.parts:
            raise UnlocatedError(
                f"the pattern {named} leaves its folder", "name the folder without '..'"
            )
        at = next(i for i, part in enumerate(path.parts) if _is_pattern(Path(part)))
        root = Path(*path.parts[:at])
        if not is_given:
            self.path(root)
        found = sorted(p for p in root.glob("/".join(path.parts[at:])) if p.is_file())
        if not found:
            raise UnlocatedError(f"no file in {root} matches {named}", "give an existing file")
        return found if is_given else [self.path(file) for file in found]

    def path(self, named: str | os.PathLike[str]) -> Path:
        """The file or folder with this name, if it exists and the recipe may read it."""
        path = self._path(named)
        real = path.resolve()
        if not any(real == root or real.is_relative_to(root) for root in self._roots):
            raise UnlocatedError(
                f"{named} is outside the recipe's folder, {self._folder}",
                "pass the path as a variable (!var), or allow its folder: load_recipe(folders=[…])",
            )
        if not path.exists():
            raise UnlocatedError(
                f"there is no {path}",
                "name a local file, relative to the recipe's folder; nothing is downloaded",
            )
        return path

    def _path(self, named: str | os.PathLike[str]) -> Path:
        return self._folder / named if isinstance(named, str) else Path(named).absolute()


def _is_pattern(path: Path) -> bool:
    return any(sign in str(path) for sign in "*?[")


def _is_path(value: object) -> TypeGuard[str | os.PathLike[str]]:
    """Whether a variable can be a path."""
    if isinstance(value, os.PathLike):
        return True
    return isinstance(value, str) and 0 < len(value) < 4096 and "\0" not in value


def load_tokenizer(access: FileAccess, tokenizer: TokenizerLike) -> TokenizerLike:
    """The tokenizer: ``byte``, a local ``tokenizer.json`` or its folder, or an object unchanged."""
    if tokenizer == "byte" or not isinstance(tokenizer, str | os.PathLike):
        return as_tokenizer(tokenizer) if tokenizer == "byte" else tokenizer
    return as_tokenizer(access.path(tokenizer))


def load_pretrained_tokenizer(
    access: FileAccess,
    pretrained_model_name_or_path: TokenizerLike,
    *,
    trust_remote_code: bool = False,
    **special: str,
) -> TokenizerLike:
    """A transformers tokenizer from a local folder, with special tokens that the recipe sets."""
    named = pretrained_model_name_or_path
    if named == "byte" or not isinstance(named, str | os.PathLike):
        return load_tokenizer(access, named)
    for name in special:
        if name not in _TOKENS:
            raise unknown_name("argument", name, _TOKENS)
    if trust_remote_code:
        raise InvalidOption(
            "trust_remote_code lets a file run code; load the tokenizer in the program and pass it "
            "as a variable"
        )
    folder = access.path(named)
    load_tokenizer(access, folder)  # refuses a folder whose config asks to run code
    try:
        from transformers import AutoTokenizer
    except ModuleNotFoundError:
        raise missing_dependency("transformers", "AutoTokenizer.from_pretrained", "hf") from None
    return AutoTokenizer.from_pretrained(
        folder, local_files_only=True, trust_remote_code=False, **special
    )


def load_dataset(
    access: FileAccess,
    path: Any,  # noqa: ANN401 - a loader's name, files, or a dataset
    *,
    data_files: str | Sequence[str] | Mapping[str, str | Sequence[str]] | None = None,
    split: str = "train",
    feature: str = "text",
) -> datasets.Dataset:
    """The texts of local jsonl, parquet, Arrow and text files; a dataset is returned unchanged."""
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
        raise InvalidOption(f"path is {path!r}, which does not name a file; give data_files")
    several = [named] if isinstance(named, str | os.PathLike) else list(named)
    files = [file for one in several for file in access.files(one)]
    return _as_dataset([{feature: text} for text in _texts(files, feature)])


def _texts(files: list[Path], feature: str) -> list[str]:
    from quire.corpus.inputs import find_inputs, read_span
    from quire.corpus.options import MEBIBYTE, CorpusOptions
    from quire.formats.format import Span

    options = CorpusOptions(max_length=1, text_column=feature, partition_size=256 * MEBIBYTE)
    texts: list[str] = []
    for file in find_inputs(files):
        span = Span(file=file.number, start=0, stop=None, first_record=0, size=file.size)
        for batch in read_span(file, span, options, {}):
            for bad in batch.bad:
                raise InvalidDocument(
                    f"{file.path}: record {bad.record} {bad.reason}; fix or remove it"
                )
            texts += batch.values
    return texts


def _as_dataset(records: list[dict[str, Any]]) -> datasets.Dataset:
    try:
        import datasets
    except ModuleNotFoundError:
        raise missing_dependency("datasets", "a recipe's dataset", "hf") from None
    return datasets.Dataset.from_list(records)


def preprocess_dataset(
    access: FileAccess,
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
    """The rows that the map function makes from a dataset, in memory.

    The function receives ``tokenizer`` and ``feature`` if it takes them and they are not bound yet;
    ``fn_kwargs`` override what the function was given.
    """
    if not hasattr(dataset, "column_names"):
        raise InvalidOption(f"{type(dataset).__name__} is not a dataset of the package datasets")
    if num_proc is not None and not 1 <= num_proc <= _MAX_PROCESSES:
        raise InvalidOption(f"num_proc is {num_proc} but must be from 1 to {_MAX_PROCESSES}")
    function = _bound(map_fn, {"tokenizer": tokenizer, "feature": feature}, dict(fn_kwargs or {}))
    if isinstance(function.keywords.get("tokenizer"), str):
        function.keywords["tokenizer"] = load_tokenizer(access, function.keywords["tokenizer"])
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
    function: Callable[..., Any], offered: Mapping[str, Any], overrides: dict[str, Any]
) -> functools.partial[Any]:
    parameters = inspect.signature(function).parameters
    taken = getattr(function, "keywords", {})
    wanted = {
        name: value
        for name, value in offered.items()
        if name in parameters and name not in taken and value is not None
    }
    for name in overrides:
        if name not in parameters:
            raise unknown_name("argument", name, parameters)
    return functools.partial(function, **(wanted | overrides))


def finish_collator(
    access: FileAccess,
    collator: Callable[..., Any],
    tokenizer: TokenizerLike,
) -> Callable[..., Any]:
    """The collator; a ``!partial`` is called with the tokenizer."""
    if not isinstance(collator, functools.partial):
        return collator
    given = {} if "tokenizer" in collator.keywords else {"tokenizer": tokenizer}
    made: Callable[..., Any] = collator(**given)
    return made
