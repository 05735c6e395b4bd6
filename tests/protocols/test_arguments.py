"""Each call checks its arguments: one sentence that names the argument, in both interfaces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import protocols
from protocols import blocking

SOCKETS = pytest.mark.parametrize("of", [protocols, blocking], ids=["asyncio", "threads"])


@SOCKETS
@pytest.mark.parametrize("options", [{}, [], 0, {"send_queue": 3}, 5, "x"], ids=repr)
def test_an_object_that_is_no_options_is_refused(of: Any, options: Any) -> None:
    """Empty ones were taken as None; for others the error said that `replace` takes dataclass instances."""
    with pytest.raises(TypeError, match=r"^options is a SocketOptions or None, not "):
        of.Req0(options=options)


@SOCKETS
def test_an_object_that_draws_no_numbers_is_refused(of: Any) -> None:
    """It failed in the first pattern that drew a number."""
    with pytest.raises(TypeError, match=r"^rng is a random\.Random or None, not 5$"):
        of.Push0(rng=5)


@pytest.mark.parametrize(
    "make",
    [
        lambda: protocols.Rep0(admit=5),  # type: ignore[arg-type]
        lambda: protocols.RawSocket(protocols.Rep0, admit=5),  # type: ignore[call-overload]
    ],
)
def test_a_hook_that_cannot_be_called_is_refused(make: Callable[[], object]) -> None:
    """Each peer was refused, and the program was not told."""
    with pytest.raises(TypeError, match="^admit is called with each new peer; 5 cannot be"):
        make()


async def test_the_options_of_one_url_are_checked_too() -> None:
    async with protocols.Pair0() as pair:
        for options in ({}, 5):
            with pytest.raises(TypeError, match="^options is a SocketOptions or None"):
                pair.dial("tcp://127.0.0.1:1", options=options)  # type: ignore[arg-type]
            with pytest.raises(TypeError, match="^options is a SocketOptions or None"):
                await pair.dial_once("tcp://127.0.0.1:1", options=options)  # type: ignore[arg-type]
            with pytest.raises(TypeError, match="^options is a SocketOptions or None"):
                await pair.listen("tcp://127.0.0.1:0", options=options)  # type: ignore[arg-type]
            with pytest.raises(TypeError, match="^options is a SocketOptions or None"):
                protocols.SharedListener("tcp://127.0.0.1:0", options=options)  # type: ignore[arg-type]


HANDLER = r"^a handler takes a question and returns its answer; 5 cannot be called$"


@pytest.mark.parametrize("kind", [protocols.Rep0, protocols.Respondent0])
async def test_a_handler_that_cannot_be_called_is_refused(kind: Any) -> None:
    """The mistake surfaced at each question, and the program waited without end."""
    async with kind() as socket:
        with pytest.raises(TypeError, match=HANDLER):
            await socket.serve(5)
        with pytest.raises(TypeError, match="^concurrency is a whole number, not 'x'$"):
            await socket.serve(bytes.upper, concurrency="x")


@pytest.mark.parametrize("kind", [blocking.Rep0, blocking.Respondent0])
def test_a_handler_that_cannot_be_called_is_refused_in_a_thread(kind: Any) -> None:
    with kind() as socket, pytest.raises(TypeError, match=HANDLER):
        socket.serve(5)


async def test_a_number_of_peers_is_a_whole_number() -> None:
    async with protocols.Pair0() as pair:
        with pytest.raises(TypeError, match="^count is a whole number, not '1'$"):
            await pair.wait_for_peers("1")  # type: ignore[arg-type]
    with blocking.Pair0() as other, pytest.raises(TypeError, match="^count is a whole number, not '1'$"):
        other.wait_for_peers("1")  # type: ignore[arg-type]


async def test_a_bound_of_events_is_a_whole_number() -> None:
    async with protocols.Pair0() as pair:
        with pytest.raises(TypeError, match="^limit is a whole number, not '1'$"):
            pair.events(limit="1")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("survey_s", "kind", "sentence"),
    [
        (-1, ValueError, "survey_s is -1; it must be from 0 to 1e9 seconds"),
        (float("inf"), ValueError, "survey_s is inf; it must be from 0 to 1e9 seconds"),
        ("1", TypeError, "survey_s is a number of seconds, not '1'"),
    ],
)
async def test_an_error_about_survey_s_names_survey_s(
    survey_s: Any, kind: type[Exception], sentence: str
) -> None:
    """The error called it "timeout"."""
    async with protocols.Surveyor0() as surveyor:
        with pytest.raises(kind, match=f"^{sentence}$"):
            surveyor.new_context(survey_s=survey_s)
        with pytest.raises(kind, match=f"^{sentence}$"):
            await surveyor.survey(b"q", survey_s=survey_s)
    with blocking.Surveyor0() as other, pytest.raises(kind, match=f"^{sentence}$"):
        other.survey(b"q", survey_s=survey_s)


@SOCKETS
def test_a_topic_is_called_a_topic(of: Any) -> None:
    """The error called it a body."""
    with pytest.raises(TypeError, match="^a topic is a str or bytes, not NoneType$"):
        of.Sub0(topics=[None])
