"""Operators' questions about durable subscriptions: pages of waiting messages, requeued dead letters,
refusals."""

from __future__ import annotations

import json
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

from mesh.dataplane import operating
from mesh.wire import blocks
from mesh.wire.durable_frames import Durable
from tests.mesh.dataplane.homes import NOW_US, World


def ask(world: World, **question: Any) -> dict[str, Any]:
    return ask_raw(world, json.dumps(question).encode())


def ask_raw(world: World, body: bytes) -> dict[str, Any]:
    answers: list[bytes] = []
    world.home.operate(body, NOW_US + 5_000_000, answers.append)
    world.pump()
    assert len(answers) == 1, "every question has one answer"
    document = json.loads(answers[0])
    assert document.pop("broker") == "alpha"
    return dict(document)


def with_dead_letters(world: World, count: int) -> list[bytes]:
    """A subscription ``mail`` whose consumer dropped ``count`` messages and left."""
    worker = world.client()
    worker.attach("mail", "jobs.#", window=count)
    bodies = [b"%d" % number for number in range(count)]
    for body in bodies:
        world.keep(body)
    for work in worker.take():
        worker.drop(work)
    worker.leave()
    return bodies


def test_figures_include_waiting_messages_their_bytes_and_their_age(tmp_path: Path) -> None:
    world = World(tmp_path)
    worker = world.client()
    worker.attach("mail", "jobs.#", window=2)
    world.keep(b"a", b"b", b"c")
    worker.take()
    queue = ask(world, do="show", name="mail")["queue"]
    assert queue["waiting"] == 3 and queue["in_flight"] == 2 and queue["consumers"] == 1
    assert queue["oldest_s"] == 5.0 and queue["bytes"] == world.journal.journal.subscriptions()[0].size > 0
    assert queue["patterns"] == ["jobs.#"] and queue["dead"] == 0 and queue["delivered"] == 2


def test_a_list_continues_after_the_last_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operating, "LISTED_MAX", 2)
    world = World(tmp_path)
    worker = world.client()
    for number, name in enumerate(["c", "a", "b"], 1):
        worker.attach(name, "jobs.#", number=number)
    first = ask(world, do="ls")
    assert [queue["name"] for queue in first["queues"]] == ["a", "b"] and first["more"] is True
    second = ask(world, do="ls", after="b")
    assert [queue["name"] for queue in second["queues"]] == ["c"] and second["more"] is False


def test_a_list_of_long_patterns_stays_below_its_bound(tmp_path: Path) -> None:
    world = World(tmp_path)
    worker = world.client()
    patterns = [f"t{number}." + "x" * 240 for number in range(64)]
    for number in range(1, 31):
        worker.attach(f"q{number:02}", *patterns, number=number)
    names: list[str] = []
    more = True
    while more:
        page = ask(world, do="ls", after=names[-1] if names else "")
        assert page["queues"] and len(json.dumps(page)) < 700_000
        names += [queue["name"] for queue in page["queues"]]
        more = page["more"]
    assert names == [f"q{number:02}" for number in range(1, 31)]


def test_dead_letters_are_sent_back_and_tried_again(tmp_path: Path) -> None:
    world = World(tmp_path)
    bodies = with_dead_letters(world, 3)
    assert world.queue("mail").waiting == 0 and world.queue("$dlq.mail").waiting == 3
    said = ask(world, do="requeue", name="mail")
    assert (said["requeued"], said["seen"], said["busy"]) == (3, 3, 0)
    assert world.queue("mail").waiting == 3 and world.queue("$dlq.mail").waiting == 0
    worker = world.client()
    worker.attach("mail")
    again = worker.take()
    assert [work.bodies for work in again] == [[body] for body in bodies]
    worker.done(*again)
    world.wait(1.0)
    assert not world.rows("mail") and not world.rows("$dlq.mail")
    assert world.restart().queue("mail").waiting == 0


def test_one_dead_letter_is_sent_back_by_its_id(tmp_path: Path) -> None:
    world = World(tmp_path)
    with_dead_letters(world, 3)
    rows = ask(world, do="export", name="$dlq.mail")["rows"]
    second = blocks.open_block(b64decode(rows[1]["blocks"][0]))
    id = f"{second.publisher:016x}-{second.boot:x}-{second.sequence}"
    said = ask(world, do="requeue", name="mail", ids=[id])
    assert said["requeued"] == 1 and said["seen"] == 3
    assert world.queue("$dlq.mail").waiting == 2
    worker = world.client()
    worker.attach("mail")
    assert [work.bodies for work in worker.take()] == [[b"1"]]


def test_dead_letters_that_a_consumer_holds_are_left_to_it(tmp_path: Path) -> None:
    world = World(tmp_path)
    with_dead_letters(world, 3)
    reader = world.client()
    reader.attach("$dlq.mail", window=1)
    held = reader.take()
    assert [work.bodies for work in held] == [[b"0"]]
    said = ask(world, do="requeue", name="mail")
    assert (said["requeued"], said["busy"]) == (2, 1)
    reader.done(*held)
    world.wait(1.0)
    assert reader.take() == [], "what was sent back is not among the dead letters any more"
    assert world.queue("$dlq.mail").waiting == 0 and world.queue("mail").waiting == 2
    assert not world.rows("$dlq.mail")


def test_dead_letters_that_a_consumer_once_had_can_be_sent_back(tmp_path: Path) -> None:
    """The queue kept them as returned, and asked the journal for their bytes forever."""
    world = World(tmp_path)
    with_dead_letters(world, 2)
    reader = world.client()
    reader.attach("$dlq.mail")
    assert len(reader.take()) == 2
    reader.die()
    assert ask(world, do="requeue", name="mail")["requeued"] == 2
    other = world.client()
    other.attach("$dlq.mail")
    world.wait(120.0)
    assert other.take() == []
    memory = world.queue("$dlq.mail").memory
    assert memory is not None and memory.suspects == memory.returned == memory.delayed == memory.fresh == 0


def test_a_dead_letter_that_is_settled_while_it_is_sent_back_is_counted_once(tmp_path: Path) -> None:
    """It was subtracted twice from the waiting messages, so that one that did wait was not shown."""
    world = World(tmp_path)
    with_dead_letters(world, 2)
    reader = world.client()
    reader.attach("$dlq.mail", window=1)
    (first,) = reader.take()
    answers: list[bytes] = []
    world.home.operate(b'{"do": "requeue", "name": "mail"}', NOW_US, answers.append)
    world.turn()
    world.journal.step()
    world.turn()  # the journal was asked for the dead letters, and the second one is about to be sent back
    for work in (first, None):
        for settled in [work] if work is not None else reader.work:
            reader.tell(Durable.DONE, 1, [[settled.row, 0, b"\x01"]])
        world.turn()
        reader.read()
    world.wait(1.0)
    assert json.loads(answers[0])["requeued"] == 1 and not world.rows("$dlq.mail")
    assert world.queue("$dlq.mail").waiting == 0 and world.queue("mail").waiting == 1
    world.keep(b"more")
    reader.attach("mail", number=2)
    for work in reader.take():
        reader.drop(work)
    world.wait(1.0)
    assert world.queue("$dlq.mail").waiting == len(world.rows("$dlq.mail")) == 2


def test_exported_messages_stay_in_the_queue(tmp_path: Path) -> None:
    world = World(tmp_path)
    worker = world.client()
    worker.attach("mail", "jobs.#")
    world.keep(b"a", b"b", b"c")
    (work,) = worker.take()
    worker.say(Durable.DONE, 1, [[work.row, 1, b"\x01"]])
    world.wait(1.0)
    page = ask(world, do="export", name="mail")
    (row,) = page["rows"]
    assert list(blocks.open_block(b64decode(row["blocks"][0])).bodies) == [b"a", b"b", b"c"]
    assert (row["floor"], b64decode(row["bitmap"])) == (0, b"\x02") and row["arrived_us"] == NOW_US
    assert ask(world, do="export", name="mail", after=page["after"]) == {
        "rows": [],
        "after": page["after"],
        "piece": 0,
        "more": False,
    }
    assert world.queue("mail").waiting == 2


def test_a_large_body_is_copied_in_pages(tmp_path: Path) -> None:
    world = World(tmp_path)
    worker = world.client()
    worker.attach("mail", "jobs.#")
    worker.leave()
    body = bytes(range(256)) * 8192
    world.keep(b"before")
    sequence = world.sequence
    for piece in blocks.seal_pieces(
        b"jobs.a", body, publisher=5, boot=3, sequence=sequence, level=blocks.STORED
    ):
        world.keep_block(piece, sequence, 1, offset=blocks.offset_of(piece))
    world.sequence += 1
    world.keep(b"behind")
    after = piece = pages = 0
    more, found = True, []
    assembler = blocks.Assembler()
    while more:
        page = ask(world, do="export", name="mail", after=after, piece=piece)
        assert len(json.dumps(page)) < 960_000
        for row in page["rows"]:
            for encoded in row["blocks"]:
                opened = blocks.open_block(b64decode(encoded))
                whole = assembler.add(opened) if opened.whole_size else (bytes(opened.bodies[0]), b"")
                found += [whole[0]] if whole is not None else []
        after, piece, more = page["after"], page["piece"], page["more"]
        pages += 1
    assert found == [b"before", body, b"behind"] and pages > 4


def test_removing_reports_the_number_of_removed_messages(tmp_path: Path) -> None:
    world = World(tmp_path)
    worker = world.client()
    worker.attach("mail", "jobs.#", window=1)
    world.keep(b"a", b"b")
    assert ask(world, do="rm", name="mail") == {"removed": 2}
    assert "error" in ask(world, do="show", name="mail") and not world.table


@pytest.mark.parametrize(
    ("question", "sentence"),
    [
        (b"", "a question is a JSON object"),
        (b"[" * 5000, "a question is a JSON object"),
        (b'"ls"', "a question is a JSON object"),
        (b" " * 70_000, "above the limit of 65536"),
        (b'{"do": "burn"}', "'burn'"),
        (b'{"do": "show"}', "'name' must be a string"),
        (b'{"do": "show", "name": "post"}', "there is no durable subscription 'post' at broker alpha"),
        (b'{"do": "rm", "name": ""}', "is empty"),
        (b'{"do": "export", "name": "mail", "after": -1}', "'after' must be a whole number"),
        (b'{"do": "requeue", "name": "mail", "ids": [1]}', "'ids' must be a list"),
        (b'{"do": "requeue", "name": "$dlq.mail"}', "holds the dead letters of 'mail'"),
    ],
)
def test_an_impossible_operation_is_refused_in_one_sentence(
    tmp_path: Path, question: bytes, sentence: str
) -> None:
    world = World(tmp_path)
    with_dead_letters(world, 1)
    assert sentence in ask_raw(world, question)["error"]


def test_too_many_questions_at_once_are_refused(tmp_path: Path) -> None:
    world = World(tmp_path)
    with_dead_letters(world, 1)
    answers: list[bytes] = []
    for _ in range(operating.UNDER_WAY_MAX + 1):
        world.home.operate(b'{"do": "ls"}', NOW_US, answers.append)
    assert len(answers) == 1 and b"try later" in answers[0]
    world.pump()
    assert len(answers) == operating.UNDER_WAY_MAX + 1
    assert "queues" in ask(world, do="ls")


def test_a_broker_without_a_journal_answers_too(tmp_path: Path) -> None:
    world = World(tmp_path, state=False)
    assert ask(world, do="ls") == {"queues": [], "more": False, "failing": "", "away": []}
