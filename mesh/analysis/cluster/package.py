"""The zip for ``spark-submit --py-files``: what executors import, in pure Python.

It contains this package and its dependencies, including networkx, so that an executor needs only a Python. On
the driver it comes before the installed packages, so its `mesh` also finds the modules of the installed one.
"""

from __future__ import annotations

import errno
import importlib.util
import os
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from mesh.errors import MeshError

OURS: Final = ("mesh/__init__.py", "mesh/errors.py", "mesh/analysis", "mesh/eventlog")
EXTENDED: Final = "\n\n__path__ = __import__('pkgutil').extend_path(__path__, __name__)\n"
"""Appended to `mesh/__init__.py`."""
MOMENT: Final = (1980, 1, 1, 0, 0, 0)
"""Time of every file, so that the same version makes the same bytes."""
MODULE: Final = ".py"
MARKS: Final = ("mesh/__init__.py", "mesh/analysis/__init__.py", "networkx/__init__.py")
"""Files that each package contains."""


def write_package(path: Path) -> Path:
    """Write the zip in one step and return its path. It replaces an earlier package.

    Raises:
        MeshError: networkx is missing, or is not in files.
        IsADirectoryError: ``path`` is a folder.
        FileExistsError: ``path`` is another file, which is kept.
        OSError: the zip cannot be written.
    """
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if path.exists() and not is_package(path):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for inside, source in _contents():
                text = source.read_bytes() + (EXTENDED.encode() if inside == OURS[0] else b"")
                entry = zipfile.ZipInfo(inside, MOMENT)
                entry.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(entry, text)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
    return path


def is_package(path: Path) -> bool:
    """True if a version of this program wrote the file as a package.

    Raises:
        OSError: it cannot be read.
    """
    if not path.is_file():  # opening a pipe would wait for its writer
        return False
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
    except zipfile.BadZipFile:
        return False
    return {entry.filename for entry in entries}.issuperset(MARKS) and all(
        entry.date_time == MOMENT and entry.filename.endswith(MODULE) for entry in entries
    )


def _contents() -> Iterator[tuple[str, Path]]:
    root = Path(__file__).resolve().parents[3]
    for name in OURS:
        place = root / name
        for source in [place] if place.is_file() else _modules(place):
            yield source.relative_to(root).as_posix(), source
    networkx = _folder_of("networkx")
    for source in _modules(networkx):
        if "tests" not in source.relative_to(networkx).parts:
            yield source.relative_to(networkx.parent).as_posix(), source


def _modules(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob(f"*{MODULE}") if path.is_file())


def _folder_of(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise MeshError(f"{package} is not installed as files; the zip needs it")
    return Path(spec.submodule_search_locations[0])
