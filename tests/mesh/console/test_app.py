"""Looking at a mesh through a client that says what the test wants, and logging what is seen."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any, cast

import pytest
from rich.console import Console

from mesh.cli import status as command
from mesh.clients.client import Client
from mesh.clients.questions import Answer, SurveyResult
from mesh.console import app
from mesh.console.control import View
from mesh.console.probe import Look, ask_all, look
from mesh.errors import Disconnected, MeshError
from tests.mesh.console import statuses
from tests.mesh.console.scenes import CLIENTS


class FakeMesh:
    """Answers as a mesh would, one script step a look; an exception in the script is raised."""

    def __init__(self, *script: list[dict[str, Any]] | Exception, survey_fails: bool = False) -> None:
        self._script = list(script)
        self._now: list[dict[str, Any]] = []
        self._survey_fails = survey_fails
        self.extra: list[bytes] = []
        self.missing: list[str] = []
        self.broker, self.url, self.connected = "alpha", "tcp://10.0.0.5:7770", False

    async def status(self) -> dict[str, Any]:
        step = self._script.pop(0) if len(self._script) > 1 else self._script[0]
        if isinstance(step, Exception):
            raise step
        self._now = step
        return step[0]

    async def survey(self, topic: str, body: bytes, *, deadline: float) -> SurveyResult:
        assert topic == "$sys.status"
        if self._survey_fails:
            raise Disconnected("gone")
        bodies = [json.dumps(status).encode() for status in self._now] + self.extra
        return SurveyResult([Answer("b", "r", body, None) for body in bodies], self.missing)


def client(mesh: FakeMesh) -> Client:
    return cast(Client, mesh)


def recorded() -> Console:
    return Console(file=StringIO(), width=80, _environ={})


def said(console: Console) -> list[str]:
    assert isinstance(console.file, StringIO)
    return console.file.getvalue().splitlines()


async def test_a_look_has_the_connected_broker_first_and_every_other_once() -> None:
    seen = await look(client(FakeMesh(statuses.calm())), 1.0)
    assert [status["name"] for status in seen.statuses] == list(statuses.NAMES)
    assert seen.silent == ()


async def test_an_answer_that_is_no_status_is_counted_and_left_out() -> None:
    mesh = FakeMesh(statuses.calm())
    mesh.extra = [b"\xff", b"[]", b'{"no": "id"}', b"[" * 100_000]
    seen = await look(client(mesh), 1.0)
    assert len(seen.statuses) == 5
    assert seen.unreadable == 4


async def test_silent_brokers_are_named() -> None:
    mesh = FakeMesh(statuses.after_a_kill())
    mesh.missing = ["beta"]
    assert (await look(client(mesh), 1.0)).silent == ("beta",)


async def test_the_connected_brokers_view_is_shown_without_a_survey_and_its_live_peers_are_silent() -> None:
    seen = await look(client(FakeMesh(statuses.calm(), survey_fails=True)), 1.0)
    assert len(seen.statuses) == 1
    assert seen.silent == ("beta", "gamma", "delta", "epsilon")
    assert len(seen.picture().nodes) == 5


async def test_a_connected_broker_that_does_not_answer_is_an_error() -> None:
    with pytest.raises(Disconnected):
        await look(client(FakeMesh(Disconnected("no broker"))), 1.0)


async def test_the_log_has_a_line_a_look_and_each_event_once() -> None:
    console = recorded()
    mesh = FakeMesh(statuses.calm(), statuses.calm(), statuses.after_a_kill())
    await app.follow(client(mesh), console, 0.0, count=3)
    lines = said(console)
    assert sum("mesh=demo" in line for line in lines) == 3
    assert sum("alpha started" in line for line in lines) == 1
    assert sum("beta suspect → dead" in line for line in lines) == 1
    assert lines.index(next(line for line in lines if "suspect → dead" in line)) < len(lines) - 1


async def test_the_log_continues_while_the_connected_broker_is_away() -> None:
    console = recorded()
    mesh = FakeMesh(statuses.calm(), Disconnected("the broker went away"), statuses.calm())
    await app.follow(client(mesh), console, 0.0, count=3)
    lines = said(console)
    (away,) = [line for line in lines if "no broker answers" in line]
    assert away.endswith(
        "no broker answers for 0s; looking for one at tcp://10.0.0.5:7770 (the broker went away)"
    )
    assert sum("mesh=demo" in line for line in lines) == 2


def test_two_looks_give_link_rates() -> None:
    before, after = Look(tuple(statuses.calm())), Look(tuple(statuses.calm()))
    for status in after.statuses:
        status["uptime_s"] += 2.0
        for member in status["members"]:
            if member["link"]:
                member["link"]["msgs_in"] += 100
    assert {edge.msgs_s for edge in after.picture(before).edges} == {50.0}


class AskedMesh(FakeMesh):
    """Knows clients and topics, too."""

    def __init__(self) -> None:
        super().__init__(statuses.calm())
        self.asked: list[str] = []

    async def survey(self, topic: str, body: bytes, *, deadline: float) -> SurveyResult:
        if topic == "$sys.status":
            return await super().survey(topic, body, deadline=deadline)
        self.asked.append(json.loads(body)["look"])
        return SurveyResult([Answer("b", "r", json.dumps(CLIENTS[0]).encode(), None)], [])


async def test_keys_act_at_once_and_views_request_their_data() -> None:
    console = Console(
        file=StringIO(), width=80, height=24, force_terminal=True, _environ={"TERM": "xterm", "NO_COLOR": "1"}
    )
    mesh, screen = AskedMesh(), app._Terminal(console)
    with screen.shown():
        screen.pressed(["l"])
        assert screen.latest is None, "keys before the first picture do no harm"
        await screen.look(client(mesh), 1.0)
        screen.pressed(["down", "enter"])
        assert screen.control.details and not screen._wanted.is_set()
        screen.pressed(["c"])
        assert screen._wanted.is_set() and mesh.asked == [], "the next look is due now"
        await screen.look(client(mesh), 1.0)
        assert mesh.asked == ["clients"] and not screen._wanted.is_set()
        await screen.look(client(FakeMesh(Disconnected("gone"))), 1.0)
        screen.pressed(["q"])
        assert screen.control.quits and screen._wanted.is_set()
    assert isinstance(console.file, StringIO)
    shown = console.file.getvalue()
    assert "asking all brokers" in shown and "gateway-3" in shown and "as it was: " in shown
    assert "\x1b[3" not in shown.replace("\x1b[3J", ""), "NO_COLOR: nothing is coloured"


class RefusingMesh(AskedMesh):
    """Lets nobody ask for clients."""

    async def survey(self, topic: str, body: bytes, *, deadline: float) -> SurveyResult:
        if topic == "$sys.status":
            return await super().survey(topic, body, deadline=deadline)
        return SurveyResult([], [], refused=["alpha: the principal may not ask '$sys.look'"])


async def test_a_missing_right_is_shown_and_the_picture_stays_fresh() -> None:
    """It was shown as a broker that does not answer."""
    console = Console(file=StringIO(), width=100, height=24, force_terminal=True, _environ={"TERM": "xterm"})
    mesh, screen = RefusingMesh(), app._Terminal(console)
    with screen.shown():
        screen.control.view = View.CLIENTS
        await screen.look(client(mesh), 1.0)
    assert isinstance(console.file, StringIO)
    shown = console.file.getvalue()
    assert "no clients: brokers refuse the question: alpha: the principal may not ask" in shown
    assert "as it was" not in shown
    with pytest.raises(MeshError, match="may not ask"):
        await ask_all(client(mesh), {"look": "clients"}, 1.0)


@pytest.mark.parametrize(("term", "live"), [("xterm", True), ("dumb", False), ("unknown", False)])
def test_a_dumb_terminal_gets_lines(term: str, live: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """TERM=dumb got the codes of a screen that it cannot show."""
    console = Console(file=StringIO(), force_terminal=True, _environ={"TERM": term})
    chosen: list[bool] = []

    async def watch(settings: Any, console: Console, interval_s: float, live: bool, count: Any) -> int:
        chosen.append(live)
        return 0

    monkeypatch.setattr(command, "_console", lambda: console)
    monkeypatch.setattr(command, "_watch", watch)
    assert command.top() == 0 and chosen == [live]
