"""The health of a broker, for orchestrators and load balancers: whether it lives, and whether it is ready.
Pure."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus

from mesh.http.messages import Response, sentence
from mesh.printable import listed, printable


def live(name: str) -> Response:
    """A broker lives if its event loop answers, as it does here."""
    return sentence(HTTPStatus.OK, f"broker {name} lives")


def ready(name: str, state: str, waits_for: Sequence[str]) -> Response:
    """A broker is ready once it has joined. An isolated broker has joined and serves its own clients, so it
    is ready."""
    match state:
        case "ready":
            return sentence(HTTPStatus.OK, f"broker {name} is ready")
        case "isolated":
            return sentence(HTTPStatus.OK, f"broker {name} is ready, but no other broker answers it")
        case "joining":
            others = listed([printable(each) for each in waits_for]) or "the members of its mesh"
            text = f"broker {name} is joining and waits for {others}"
        case "starting":
            text = f"broker {name} is starting"
        case _:
            text = f"broker {name} is {state}"
    return sentence(HTTPStatus.SERVICE_UNAVAILABLE, text)
