"""The machine's files, through the interface for a database."""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path

import pytest

from mesh.database.files import RealFiles


def test_a_missing_file_has_no_size_and_no_content(tmp_path: Path) -> None:
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


def test_a_copy_is_another_file_and_a_renamed_one_the_same(tmp_path: Path) -> None:
    files, path = RealFiles(), str(tmp_path / "a")
    Path(path).write_bytes(b"abc")
    before = files.identity(path)
    shutil.copy(path, path + "2")
    assert files.identity(path + "2") != before
    files.rename(path, path + "3")
    assert files.identity(path + "3") == before


@pytest.mark.skipif(not os.path.exists("/proc/locks"), reason="only Linux tells")
def test_the_holder_of_a_file_lock_is_found_without_opening_the_file(tmp_path: Path) -> None:
    files, path = RealFiles(), tmp_path / "a"
    path.write_bytes(b"abc")
    assert files.locked_by(str(path)) == 0
    assert files.locked_by(str(tmp_path / "none")) == 0
    with path.open("r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        assert files.locked_by(str(path)) == os.getpid()
        assert files.locked_by(str(path)) == os.getpid()
    assert files.locked_by(str(path)) == 0
