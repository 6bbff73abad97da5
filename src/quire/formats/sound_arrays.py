"""Arrow arrays whose offsets can be followed.

Arrow takes a file as it is: an offset that lies leads outside of the memory, which ends the process
or gives away what stands there.
"""

from __future__ import annotations

import pyarrow as pa

_AS_BYTES = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary()}


def require_sound(data: pa.Table | pa.RecordBatch) -> None:
    """Raise `pa.ArrowInvalid` if an offset of the data leads outside of it.

    Text is looked at as bytes: what is no UTF-8 is a fault of its record, not of the file.

    >>> require_sound(pa.table({"text": ["a", "b"]}))
    """
    for column in data.columns:
        for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
            chunk.validate()
            as_bytes = _AS_BYTES.get(chunk.type)
            (chunk if as_bytes is None else chunk.view(as_bytes)).validate(full=True)
