"""Following through rotation, a broker killed in the middle of a line, and a killed follower: each row
once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="the extra 'analysis' is not installed")
pytest.importorskip("pyarrow", reason="a source of our own needs pyarrow")

from mesh.analysis.following.follower import follow
from mesh.analysis.following.health import Picture
from mesh.analysis.reading.reduced import Store
from mesh.analysis.results.folder import open_place
from tests.mesh.analysis.reading.test_logs import SMALL
from tests.mesh.analysis.reading.test_reduced import tables
from tests.mesh.analysis.synthetic import write_logs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(900)]


class Killed(Exception):
    """Represents the end of the process."""


def test_no_row_is_lost_or_duplicated(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file source doubled 1 982 rows of 8 679, or missed the killed broker's last 79."""
    whole_logs, logs, out = tmp_path / "whole", tmp_path / "logs", tmp_path / "out" / "reduced"
    write_logs(SMALL, whole_logs)
    whole = {path.name.removesuffix(".part"): path.read_bytes() for path in whole_logs.iterdir()}
    logs.mkdir()
    shares = iter([0.2, 0.45, 0.6, 0.8, 1.0])
    pictures: list[Picture] = []

    def write_more() -> bool:
        """Every broker continues to write, files are finished, and one broker is killed in the middle of a
        line."""
        share = next(shares, None)
        for number, (name, text) in enumerate(sorted(whole.items())):
            if share is None:
                continue
            path = logs / f"{name}.part"
            if share < 1 or number == 0:
                path.write_bytes(text[: int(len(text) * min(share, 0.97))])
            else:
                path.rename(logs / name).write_bytes(text)
        return share is not None

    def round_(kill: str | None) -> None:
        store = Store(spark, open_place(spark, str(out)))
        told = len(pictures)
        writes = store._place.write

        def write(name: str, text: str) -> None:
            if kill == "before the manifest":
                raise Killed
            writes(name, text)

        monkeypatch.setattr(store._place, "write", write)

        def show(picture: Picture) -> None:
            pictures.append(picture)
            if kill == "after the manifest":
                raise Killed

        scratch = tmp_path / f"scratch-{len(list(tmp_path.iterdir()))}"
        follow(spark, logs, store, scratch, show, every_s=0.1, until=lambda: len(pictures) > told)

    for kill in ("before the manifest", "after the manifest", "before the manifest", None, None):
        assert write_more()
        if kill is None:
            round_(None)
        else:
            with pytest.raises(Exception, match="Killed"):
                round_(kill)
    stored = Store(spark, open_place(spark, str(out)))
    appended: list[object] = []
    monkeypatch.setattr(stored, "append", lambda *arguments: appended.append(arguments))
    found = tables(spark, logs, stored)
    assert found == tables(spark, logs)
    assert appended == [], "what was followed is not read again"
    rows = sum(len(path.read_bytes().splitlines()) for path in logs.iterdir())
    read, corrupt = (sum(row[name] for row in found["files"]) for name in ("rows", "corrupt"))
    assert (read, corrupt) == (rows - 2, 2), "two brokers were killed in half a line"
    assert {broker.name for broker in pictures[-1].brokers} == {"alpha", "beta"}
