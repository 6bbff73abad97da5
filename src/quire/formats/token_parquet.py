"""Parquet with a list of tokens in each record: written to the cache as Arrow once, then mapped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from quire.formats import parquet
from quire.formats.arrays import is_number_list
from quire.formats.expanded import expanded
from quire.formats.files import InputFile
from quire.formats.format import Span
from quire.formats.token_arrow import open_arrow
from quire.formats.token_columns import PER_TOKEN
from quire.formats.token_files import TOKENS, Ints, TokenFile
from quire.storage import AnyPath

OPTIONS: Mapping[str, tuple[str, ...]] = {"column": ()}


def recognizes(path: AnyPath) -> bool:
    """Whether this is a parquet file; what it holds is seen when it is opened."""
    return path.suffix == ".parquet" and path.is_file()


def main_file(path: AnyPath) -> AnyPath | None:
    """The file of a path."""
    return path if recognizes(path) else None


def open_files(
    path: AnyPath, options: Mapping[str, str], known: Mapping[str, Ints]
) -> list[TokenFile]:
    """The records of one file."""
    del known
    names = list(dict.fromkeys([options.get("column", TOKENS), *PER_TOKEN]))
    return [open_arrow(path, options, held_in=as_arrow(path, names))]


def schema_of(path: AnyPath) -> pa.Schema:
    """The columns of a parquet file."""
    return parquet.FORMAT.schema(_input(path))


def as_arrow(path: AnyPath, names: Sequence[str]) -> Path:
    """The lists of numbers among these columns, as an Arrow file in the cache."""
    file = _input(path)
    schema = parquet.FORMAT.schema(file)
    wanted = [
        one for one in names if one in schema.names and is_number_list(schema.field(one).type)
    ]

    def write(target: Path) -> None:
        # Parquet does not keep 64-bit offsets, and pieces are small.
        plain = pa.schema([(one, pa.list_(schema.field(one).type.value_type)) for one in wanted])
        with (
            parquet.FORMAT.opened(file, wanted) as table,
            target.open("wb") as sink,
            pa.ipc.new_file(sink, plain) as writer,
        ):
            for batch in table.rows(Span()):
                writer.write_batch(batch.cast(plain))

    return expanded(path, f"{'-'.join(wanted)[:80]}.arrow", write)


def _input(path: AnyPath) -> InputFile:
    return InputFile(number=0, path=path, name=path.name, size=path.stat().st_size)
