"""A disk that fails while an input is read: an error that says so; the run can be resumed."""

from __future__ import annotations

import errno
import io
import os
from pathlib import Path

import pytest

from quire.errors import SourceError
from tests.corpus.corpora import hashes, jsonl, pack, texts


class _Failing(io.FileIO):
    """A file whose second half cannot be read."""

    def readinto(self, buffer) -> int:
        half = Path(self.name).stat().st_size // 2
        if self.tell() >= half:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return super().readinto(memoryview(buffer)[: half - self.tell()])

    def readall(self) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.mark.parametrize("kind", ["jsonl", "txt"])
def test_39_an_input_that_fails_is_an_error_and_the_run_can_be_resumed(tmp_path, monkeypatch, kind):
    """Fault 39, on the disk that is read."""
    inputs = [jsonl(tmp_path / "a.jsonl", texts(50)), tmp_path / f"b.{kind}"]
    jsonl(inputs[1], texts(50, seed=1))
    pack(inputs, tmp_path / "undisturbed", partition_size=400)
    real, left = Path.open, [1]

    def open_path(path, mode="r", *arguments, **keywords):
        if path != inputs[1] or left[0] > 0:
            left[0] -= path == inputs[1]  # the first time is to know the file again
            return real(path, mode, *arguments, **keywords)
        return io.BufferedReader(_Failing(path))

    monkeypatch.setattr(Path, "open", open_path)
    with pytest.raises(
        SourceError,
        match=rf"b\.{kind} cannot be read: Input/output error; committed shards",
    ):
        pack(inputs, tmp_path / "out", partition_size=400)
    monkeypatch.undo()
    pack(inputs, tmp_path / "out", partition_size=400, resume=True)
    assert hashes(tmp_path / "out") == hashes(tmp_path / "undisturbed")
