"""Each byte of each file is read once, whatever happens to the files, and batches stay few."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mesh.analysis.reading.coverage import (
    MERGED,
    Head,
    Plan,
    Seen,
    Span,
    plan,
    stem_of,
    to_look_at,
    to_merge,
    visible,
    without_copies,
)
from mesh.analysis.reading.finding import LogFile


def file(name: str, bytes: int, at: int = 1) -> LogFile:
    return LogFile(f"file:/logs/{name}", name, bytes, at)


def planned(now: list[LogFile], seen: dict[str, Seen], heads: dict[str, Head]) -> Plan:
    """Like the store: opens only files that it must, and remembers the plan."""
    looked = [each.name for each in to_look_at(now, seen)]
    made = plan(now, seen, {name: heads[name] for name in looked})
    seen.update((each.stem, each) for each in made.seen)
    return made


def spans_of(made: Plan) -> list[tuple[str, int, int]]:
    return [(part.file.name, part.start, part.end) for part in made.slices]


def test_a_finished_file_is_read_once() -> None:
    seen: dict[str, Seen] = {}
    done = file("a-1.jsonl", 100)
    assert planned([done], seen, {}).files == [done]
    again = planned([done], seen, {})
    assert (again.files, again.slices, again.seen) == ([], [], [])


def test_a_file_that_grows_is_read_from_where_it_was_left_also_when_it_is_finished() -> None:
    """Spark's file source then took it for another file, and doubled its rows."""
    seen: dict[str, Seen] = {}
    first = planned([file("a-1.jsonl.part", 110)], seen, {"a-1.jsonl.part": Head(110, 100, "x")})
    assert spans_of(first) == [("a-1.jsonl.part", 0, 100)]
    assert [(part.start, part.end) for part in first.tails] == [(100, 110)]
    done = planned([file("a-1.jsonl", 150, 2)], seen, {"a-1.jsonl": Head(150, 150, "x")})
    assert spans_of(done) == [("a-1.jsonl", 100, 150)]
    assert planned([file("a-1.jsonl", 150, 2)], seen, {}) == Plan()


def test_half_a_line_of_a_killed_broker_is_reported_each_time_and_not_read_again() -> None:
    seen: dict[str, Seen] = {}
    now = [file("a-1.jsonl.part", 110)]
    planned(now, seen, {"a-1.jsonl.part": Head(110, 100, "x")})
    again = planned(now, seen, {})
    assert spans_of(again) == [] and [(part.start, part.end) for part in again.tails] == [(100, 110)]


def test_a_file_that_shrank_or_begins_otherwise_is_read_anew() -> None:
    for head in (Head(60, 60, "x"), Head(200, 200, "y")):
        seen: dict[str, Seen] = {}
        planned([file("a.jsonl.part", 100)], seen, {"a.jsonl.part": Head(100, 100, "x")})
        made = planned([file("a.jsonl.part", head.bytes, 2)], seen, {"a.jsonl.part": head})
        assert spans_of(made) == [("a.jsonl.part", 0, head.bytes)]
        assert seen["a.jsonl"].generation == 1


def test_a_finished_file_that_was_touched_is_read_anew() -> None:
    seen: dict[str, Seen] = {}
    planned([file("a.jsonl", 100)], seen, {})
    made = planned([file("a.jsonl", 100, 2)], seen, {})
    assert [each.name for each in made.files] == ["a.jsonl"] and seen["a.jsonl"].generation == 1


class Disk:
    """A broker's folder: lines are added in pieces, files are finished, replaced and removed."""

    def __init__(self) -> None:
        self.texts: dict[str, bytes] = {}
        self.times: dict[str, int] = {}
        self.now = 0

    def touch(self, name: str, text: bytes) -> None:
        self.now += 1
        self.texts[name], self.times[name] = text, self.now

    def listing(self) -> list[LogFile]:
        return [file(name, len(text), self.times[name]) for name, text in sorted(self.texts.items())]

    def heads(self) -> dict[str, Head]:
        return {name: head_of(text) for name, text in self.texts.items()}


def head_of(text: bytes) -> Head:
    first, newline, _ = text.partition(b"\n")
    return Head(len(text), text.rfind(b"\n") + 1, first.decode() if newline else None)


DEEDS = st.lists(
    st.tuples(
        st.sampled_from(["add", "half", "finish", "replace", "remove", "look"]),
        st.sampled_from(["a", "b"]),
        st.integers(1, 4),
    ),
    max_size=30,
)


@given(DEEDS)
def test_stored_content_equals_the_content_of_the_files(deeds: list[tuple[str, str, int]]) -> None:
    disk, seen = Disk(), dict[str, Seen]()
    stored: dict[tuple[str, int], list[bytes]] = {}
    for number, (deed, name, amount) in enumerate([*deeds, ("look", "a", 1)]):
        growing, done = f"{name}.jsonl.part", f"{name}.jsonl"
        if deed in ("add", "half") and done not in disk.texts:
            lines = b"".join(b"%d-%d\n" % (number, line) for line in range(amount))
            disk.touch(growing, disk.texts.get(growing, b"") + (lines if deed == "add" else lines[:-2]))
        elif deed == "finish" and growing in disk.texts:
            disk.texts[done], disk.times[done] = disk.texts.pop(growing), disk.times.pop(growing)
        elif deed == "replace" and growing in disk.texts:
            disk.touch(growing, b"new-%d\n" % number * amount)
        elif deed == "remove":
            disk.texts.pop(growing, None)
        elif deed == "look":
            made = planned(disk.listing(), seen, disk.heads())
            for part in made.slices:
                take(stored, seen, part.file, disk.texts[part.file.name][part.start : part.end])
            for whole in made.files:
                take(stored, seen, whole, disk.texts[whole.name])
            tails = {part.file.name: (part.start, part.end) for part in made.tails}
            for each in disk.listing():
                start, end = tails.get(each.name, (0, 0))
                known = seen[stem_of(each.name)]
                held = b"".join(stored.get((known.stem, known.generation), []))
                assert held + disk.texts[each.name][start:end] == disk.texts[each.name]


def take(
    stored: dict[tuple[str, int], list[bytes]], seen: dict[str, Seen], file: LogFile, text: bytes
) -> None:
    known = seen[stem_of(file.name)]
    stored.setdefault((known.stem, known.generation), []).append(text)


@given(st.integers(1, 400))
def test_batches_are_merged_so_that_few_folders_hold_all_of_them(count: int) -> None:
    spans: list[Span] = []
    for number in range(1, count + 1):
        spans = visible([*spans, (number, number)])
        while merging := to_merge(spans):
            spans = visible([*spans, (merging[0][0], merging[-1][1])])
    held = [number for first, last in spans for number in range(first, last + 1)]
    assert held == list(range(1, count + 1))
    assert len(spans) < MERGED * 4


def test_a_folder_that_stands_for_others_hides_them() -> None:
    assert visible([(1, 1), (2, 2), (1, 2), (3, 3)]) == [(1, 2), (3, 3)]


def test_a_copy_of_the_growing_file_beside_the_finished_one_is_left_out() -> None:
    """Copying logs twice leaves both. They had one stem, and each third run lost the end of the file."""
    done, copy = file("a.jsonl", 100), file("a.jsonl.part", 60)
    assert without_copies([copy, done, file("b.jsonl.part", 9)]) == [done, file("b.jsonl.part", 9)]
    half = file("a.jsonl", 40)  # the copy of the finished file has not arrived yet
    assert without_copies([half, copy]) == [copy]
