"""The machine's files, as a journal asks for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from mesh.journal.files import RealFiles


def test_what_is_not_there_is_none_or_empty(tmp_path: Path) -> None:
    files, path = RealFiles(), str(tmp_path / "none")
    assert files.size(path) is None
    assert files.read(path) == b""
    files.remove(path)
    with pytest.raises(FileNotFoundError):
        files.rename(path, path + "2")


def test_files_are_measured_read_renamed_and_removed(tmp_path: Path) -> None:
    files, path = RealFiles(), str(tmp_path / "a")
    Path(path).write_bytes(b"abc")
    assert (files.size(path), files.read(path)) == (3, b"abc")
    files.rename(path, path + "b")
    assert files.names(str(tmp_path)) == ["ab"]
    files.remove(path + "b")
    assert files.names(str(tmp_path)) == []
    assert files.free_bytes(str(tmp_path)) > 0


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        RealFiles().size(str(tmp_path))
