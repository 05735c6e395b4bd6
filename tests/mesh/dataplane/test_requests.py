"""Requests and surveys on one broker and among several: which subscribers are asked."""

from __future__ import annotations

from mesh.wire.session_frames import Role
from tests.mesh.dataplane.neighbourhood import FakeClient, FakeMesh


def answered_by(mesh: FakeMesh, asker: FakeClient, answerers: list[FakeClient]) -> str:
    """Ask, and answer where the question arrived. Returns the responder."""
    asker.ask("work", b"q")
    asked = [client for client in answerers if any(feed.runs for feed in client.conversation.feeds)]
    (chosen,) = asked
    (feed,) = chosen.conversation.feeds
    run = chosen.conversation.next_run(feed, mesh.now)
    assert run is not None and run.tokens is not None and len(run.tokens) == 1
    chosen.conversation.answer(run.tokens[0], b"done")
    mesh.pump()
    return chosen.conversation.name


def test_requests_go_to_the_answerers_of_a_broker_in_turn() -> None:
    mesh = FakeMesh(2)
    asker = mesh.client(1, "asker")
    answerers = [mesh.client(1, name) for name in "abc"]
    far = mesh.client(2, "far")
    for client in (*answerers, far):
        client.subscribe("work", role=Role.ANSWERS)
    asked = [answered_by(mesh, asker, [*answerers, far]) for _ in range(6)]
    assert sorted(asked[:3]) == ["a", "b", "c"] and asked[3:] == asked[:3], (
        "each in its turn, the near ones only"
    )
