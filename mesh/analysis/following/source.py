"""Growing logs as a source of Structured Streaming: byte ranges of files, up to complete lines.

Spark's own file source takes a file once, in its present state. It doubles rows when a file loses its
``.part``, or misses the last rows of a killed broker. Here an offset is the number of a step, and
`mesh.analysis.following.growing` says what each step adds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from mesh.analysis.following.growing import Piece, Steps, lines_of_piece

NAME: Final = "mangrove-logs"
COLUMNS: Final = "path string, lines string"
PARTITIONS_MAX: Final = 8


class GrowingLogs(DataSource):
    """Options: ``path``, the folder of logs; ``scratch``, the folder of the steps."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return COLUMNS

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return _Reader(Path(self.options["path"]), Path(self.options["scratch"]))


class _Pieces(InputPartition):
    """Some pieces of a step, read by one task."""

    def __init__(self, pieces: Sequence[tuple[str, str, int, int]]) -> None:
        super().__init__(None)
        self.pieces = pieces


class _Reader(DataSourceStreamReader):
    def __init__(self, folder: Path, scratch: Path) -> None:
        self._folder = folder
        self._steps = Steps(folder, scratch)

    def initialOffset(self) -> dict[str, int]:
        return {"step": 0}

    def latestOffset(self, start: dict[str, int], limit: object) -> dict[str, int]:
        return {"step": self._steps.after(start["step"])}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        pieces = [
            piece
            for number in range(start["step"] + 1, end["step"] + 1)
            for piece in self._steps.read(number).pieces
        ]
        return [_Pieces(share) for share in shares(pieces, PARTITIONS_MAX)]

    def read(self, partition: InputPartition) -> Iterator[tuple[str, str]]:
        assert isinstance(partition, _Pieces)
        for path, name, start, end in partition.pieces:
            for lines in lines_of_piece(self._folder, name, start, end):
                yield path.replace("%", "%25"), lines


def shares(pieces: Sequence[Piece], count: int) -> list[list[tuple[str, str, int, int]]]:
    """At most ``count`` shares of about the same size. The largest pieces are distributed first."""
    found: list[list[tuple[str, str, int, int]]] = [[] for _ in range(min(count, len(pieces)))]
    sizes = [0] * len(found)
    for piece in sorted(pieces, key=lambda piece: (piece.start - piece.end, piece.name)):
        least = sizes.index(min(sizes))
        sizes[least] += piece.end - piece.start
        found[least].append((piece.path, piece.name, piece.start, piece.end))
    return found
