"""Looks at growing files: each whole line once, whatever happens to the files between two looks."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.analysis.following import growing
from mesh.analysis.following.growing import Steps, lines_of_piece

DEEDS = st.lists(
    st.tuples(
        st.sampled_from(["write", "half", "finish", "look", "look", "restart"]),
        st.sampled_from("ab"),
        st.integers(1, 30),
    ),
    max_size=40,
)


class Brokers:
    """Two brokers that write to a folder, and the lines that they finished."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._number = dict.fromkeys("ab", 1)
        self._open = dict.fromkeys("ab", "")
        self.lines: list[str] = []
        self._count = 0

    def path(self, name: str) -> Path:
        return self._folder / f"{name}-{self._number[name]}.jsonl.part"

    def write(self, name: str, size: int, *, half: bool) -> None:
        self._count += 1
        text = f"{name}{self._count}{'x' * size}"
        with self.path(name).open("a") as file:
            file.write(text if half else f"{text}\n")
        self._open[name] += text
        if not half:
            self.lines.append(self._open[name])
            self._open[name] = ""

    def finish(self, name: str) -> None:
        if not self._open[name] and self.path(name).exists():
            self.path(name).rename(self.path(name).with_suffix(""))
            self._number[name] += 1


class Reader:
    """Takes steps as Spark does. When restarted, it forgets everything except what it stored."""

    def __init__(self, folder: Path, scratch: Path) -> None:
        self._folder = folder
        self._scratch = scratch
        self.lines: list[str] = []
        self._seen: dict[str, growing.Seen] = {}
        self.restart()

    def restart(self) -> None:
        self._steps = Steps(self._folder, Path(tempfile.mkdtemp(dir=self._scratch)))
        self._steps.begin(self._seen)
        self._at = 0

    def look(self) -> bool:
        following = self._steps.after(self._at)
        assert self._steps.after(self._at) == following, "the same question has the same answer"
        if following == self._at:
            return False
        step = self._steps.read(following)
        for piece in step.pieces:
            for text in lines_of_piece(self._folder, piece.name, piece.start, piece.end):
                self.lines += text.split("\n")
        self._seen.update((seen.stem, seen) for seen in step.seen)
        self._at = following
        return True


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A step takes a few lines, and reads them in pieces."""
    monkeypatch.setattr(growing, "STEP_BYTES", 50)
    monkeypatch.setattr(growing, "CHUNK_BYTES", 7)
    yield


@pytest.mark.usefixtures("small_steps")
def test_lines_come_once_and_in_order_through_rotation_and_restarts() -> None:
    @given(DEEDS)
    def deeds_are_followed(deeds: list[tuple[str, str, int]]) -> None:
        with tempfile.TemporaryDirectory() as place:
            folder, scratch = Path(place) / "logs", Path(place) / "scratch"
            folder.mkdir()
            scratch.mkdir()
            brokers, reader = Brokers(folder), Reader(folder, scratch)
            for deed, name, size in deeds:
                if deed in ("write", "half"):
                    brokers.write(name, size, half=deed == "half")
                elif deed == "finish":
                    brokers.finish(name)
                elif deed == "look":
                    reader.look()
                else:
                    reader.restart()
            while reader.look():
                pass
            assert sorted(reader.lines) == sorted(brokers.lines)

    deeds_are_followed()


def test_a_broker_killed_in_half_a_line_has_its_whole_lines_read(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a-1.jsonl.part").write_text('{"one": 1}\n{"two": 2}\n{"thr')
    reader = Reader(tmp_path / "logs", tmp_path)
    assert reader.look() and not reader.look()
    assert reader.lines == ['{"one": 1}', '{"two": 2}']


def test_a_file_that_was_replaced_by_a_shorter_one_is_read_anew(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    place = tmp_path / "logs" / "a-1.jsonl.part"
    place.write_text("one\ntwo\nthree\n")
    reader = Reader(tmp_path / "logs", tmp_path)
    reader.look()
    place.write_text("four\nfi")
    assert reader.look()
    assert reader.lines[3:] == ["four"]
    assert reader._seen["a-1.jsonl"].generation == 1


def test_a_step_is_bounded_and_reports_the_bytes_that_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(growing, "STEP_BYTES", 10)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a-1.jsonl").write_text("12345\n" * 5)
    steps = Steps(tmp_path / "logs", tmp_path / "steps")
    steps.begin({})
    first = steps.read(steps.after(0))
    assert [(piece.start, piece.end) for piece in first.pieces] == [(0, 12)]
    assert first.waiting_bytes == 18


def test_a_file_that_is_finished_between_look_and_reading_is_read_under_its_new_name(tmp_path: Path) -> None:
    growing_file = tmp_path / "a-1.jsonl.part"
    growing_file.write_text("one\ntwo\n")
    growing_file.rename(tmp_path / "a-1.jsonl")
    assert list(lines_of_piece(tmp_path, "a-1.jsonl.part", 4, 8)) == ["two"]


def test_a_file_that_its_broker_removed_as_too_old_has_no_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file removed between the listing and the look, or before it was read, ended the follower."""
    logs = tmp_path / "logs"
    logs.mkdir()
    for name in ("a-1.jsonl", "b-1.jsonl.part"):
        (logs / name).write_text("one\n")
    listed = list(growing.logs_in(logs))
    (logs / "a-1.jsonl").unlink()
    assert list(lines_of_piece(logs, "a-1.jsonl", 0, 4)) == []
    monkeypatch.setattr(growing, "logs_in", lambda folder: listed)
    reader = Reader(logs, tmp_path)
    assert reader.look()
    assert reader.lines == ["one"]
    assert set(reader._seen) == {"b-1.jsonl"}


def test_logs_are_followed_again_when_their_folder_is_back(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    reader = Reader(logs, tmp_path)
    assert not reader.look()
    (logs / "host-1").mkdir(parents=True)
    (logs / "host-1" / "a-1.jsonl.part").write_text("one\n")
    assert reader.look()
    (logs / "host-1" / "a-1.jsonl.part").unlink()
    (logs / "host-1").rmdir()
    logs.rmdir()
    assert not reader.look()
    assert reader.lines == ["one"]
