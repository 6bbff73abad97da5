"""Folders and files that a crash leaves whole or not at all."""

from __future__ import annotations

import os

import pytest

from quire.files import make_folder, whole_file


def test_39_a_new_folder_and_those_above_it_are_synced(tmp_path, monkeypatch):
    """Fault 39: where the power fails, what is in a folder goes with the folder's name."""
    synced = []
    real = os.open

    def note(path, flags, *more):
        synced.append(path)
        return real(path, flags, *more)

    monkeypatch.setattr(os, "open", note)
    make_folder(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()
    assert synced == [tmp_path / "a", tmp_path]
    make_folder(tmp_path / "a" / "b")
    assert synced == [tmp_path / "a", tmp_path], "what stands is not synced again"


def test_37_a_file_appears_whole_or_not_at_all(tmp_path):
    """Fault 37: an error inside the block leaves what was there, and nothing beside it."""
    (tmp_path / "a").write_text("old")
    with pytest.raises(ValueError, match="broken"), whole_file(tmp_path / "a") as temporary:
        temporary.write_text("ne")
        raise ValueError("broken")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_text() == "old"
