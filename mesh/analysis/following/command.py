"""`mesh analyze LOGS --follow`: the shell around a follower, its store and the console."""

from __future__ import annotations

import json as json_text
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from mesh.analysis.cluster.file_systems import as_mesh_error
from mesh.analysis.cluster.session import spark_session
from mesh.analysis.cluster.settings import SparkOptions
from mesh.analysis.following.health import Picture
from mesh.analysis.following.view import as_json, view
from mesh.analysis.reading.finding import NoLogs, check_readable
from mesh.errors import ConfigError

FOLDER_HINT: Final = "name the folder that brokers of this machine were given as --log-dir"


def follow_logs(
    folder: str, out: str, spark: SparkOptions, *, json: bool = False, timeout_s: float | None = None
) -> None:
    """Follow until interrupted, or for ``timeout_s`` after the first view. Shows the mesh's health, or prints
    it as lines of JSON.

    Raises:
        NoLogs: there is no such folder on this machine.
        NotReadable: this user may not read a log in it.
        OutputError: the output belongs to another program, or cannot be written.
        Locked: another analysis writes there.
        ConfigError: ``spark`` is a cluster's.
        NoFileSystem: Spark cannot reach the file system of ``out``.
        MeshError: Spark did not start or gave up.
    """
    place = Path(folder.removeprefix("file://")).expanduser().resolve()
    if not place.is_dir():
        raise NoLogs(f"--follow reads files of this machine, and {folder} is no folder here; {FOLDER_HINT}")
    if not spark.local:
        raise ConfigError("--follow reads files of this machine; leave --master away, or name local[N]")
    check_readable(place)
    from mesh.analysis.results.folder import check_output

    check_output(out)
    with _shown(json) as show, spark_session(replace(spark, small=True)) as session:
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]
        from pyspark.errors import PySparkException

        from mesh.analysis.following.follower import follow
        from mesh.analysis.reading.reduced import Store
        from mesh.analysis.results.folder import REDUCED, open_place, open_results, writing

        timed = Timed(show, timeout_s)
        try:
            with (
                open_results(session, out) as results,
                TemporaryDirectory(prefix="mangrove-follow-") as scratch,
            ):
                store = Store(session, open_place(session, f"{results.place.url}/{REDUCED}"))
                with writing(out):
                    follow(session, place, store, Path(scratch), timed.show, until=timed.ended)
        except (PySparkException, Py4JError) as error:
            raise as_mesh_error(error) from error


class Timed:
    """Counts ``timeout_s`` from the first view: Spark takes many seconds to start. None: it never ends."""

    def __init__(
        self,
        show: Callable[[Picture], None],
        timeout_s: float | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._show = show
        self._timeout_s = timeout_s
        self._clock = clock
        self._began_s: float | None = None

    def show(self, picture: Picture) -> None:
        if self._began_s is None:
            self._began_s = self._clock()
        self._show(picture)

    def ended(self) -> bool:
        if self._timeout_s is None or self._began_s is None:
            return False
        return self._clock() - self._began_s >= self._timeout_s


@contextmanager
def _shown(json: bool) -> Iterator[Callable[[Picture], None]]:
    if json:
        yield lambda picture: print(json_text.dumps(as_json(picture), ensure_ascii=False), flush=True)
        return
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(highlight=False)
    if not console.is_terminal:
        yield lambda picture: console.print(view(picture))
        return
    with Live(Text("starting Spark ..."), console=console, auto_refresh=False) as live:
        yield lambda picture: live.update(view(picture, console.height), refresh=True)
