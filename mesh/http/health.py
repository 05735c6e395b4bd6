"""Whether a broker lives and is ready, as orchestrators and load balancers ask. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus

from mesh.http.messages import Response, sentence
from mesh.printable import listed, printable


def live(name: str) -> Response:
    """Its event loop answers: that is all there is to live."""
    return sentence(HTTPStatus.OK, f"broker {name} lives")


def ready(name: str, state: str, waits_for: Sequence[str]) -> Response:
    """Ready is joined. An isolated broker has joined and serves its own clients, so it is ready."""
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
