"""The answers of each path."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from mesh.http.guard import Guard
from mesh.http.messages import Request
from mesh.http.site import AGE_S, FILES, PATHS, Site
from mesh.http.source import Answered, Figures
from mesh.listen import HttpListen
from tests.mesh.http.figures import figures


class Alpha:
    """A broker that joins."""

    name, state = "alpha", "joining"
    waits_for: Sequence[str] = ("beta",)

    def status(self) -> bytes:
        return b'{"schema":1}'

    def figures(self) -> Figures:
        return figures()

    def ask_all(self, deadline_s: float, bytes_max: int, then: Answered) -> None:
        raise NotImplementedError


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def site(clock: Clock | None = None) -> Site:
    return Site(Alpha(), Guard(HttpListen("9770"), "here"), answers=dict, clock=clock or Clock())


def test_each_path_has_its_answer() -> None:
    served = site()
    for path, status, kind in (
        ("/", 200, "text/html"),
        ("/livez", 200, "text/plain"),
        ("/readyz", 503, "text/plain"),
        ("/metrics", 200, "text/plain; version=0.0.4"),
        ("/status.json", 200, "application/json"),
        *((path, 200, kind) for path, (_, kind) in FILES.items()),
    ):
        answer = served.answer(Request("GET", path))
        assert (answer.status, answer.type.startswith(kind)) == (status, True) and answer.body, path


@pytest.mark.parametrize(
    "path", ["/nothing", "//", "/livez/", "/LIVEZ", "/../etc/passwd", "/static/page.js", "*", "", "/\x1b[2J"]
)
def test_other_paths_are_not_found_and_the_answer_names_those_that_are(path: str) -> None:
    answer = site().answer(Request("GET", path))
    assert answer.status == 404 and all(known in answer.body.decode() for known in PATHS)
    assert "\x1b" not in answer.body.decode() and answer.body.count(b"\n") == 1


def test_the_stream_is_served_only_to_requests_for_events() -> None:
    """An image on another site held one of the places for open pages until its page was closed."""
    served = site()
    assert served.answer(Request("GET", "/live", {"accept": "text/event-stream"})).stream
    for accept in ("", "*/*", "image/avif,image/webp,*/*;q=0.8"):
        answer = served.answer(Request("GET", "/live", {"accept": accept}))
        assert answer.status == 406 and not answer.stream


def test_the_page_may_load_its_own_files_only() -> None:
    headers = dict(site().answer(Request("GET", "/")).headers)
    policy = headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'") and "http" not in policy and "unsafe" not in policy
    for path, (name, _) in FILES.items():
        text = site().answer(Request("GET", path)).body.decode()
        foreign = text.replace("http://www.w3.org/2000/svg", "")
        assert "http://" not in foreign and "https://" not in foreign and "innerHTML" not in text, name


def test_expensive_documents_are_made_at_most_once_a_second() -> None:
    clock = Clock()
    served = site(clock)
    for number in range(1000):
        clock.now = number / 100
        for path in ("/metrics", "/status.json"):
            assert served.answer(Request("GET", path)).status == 200
    assert served.metrics.made == served.status.made == pytest.approx(10 / AGE_S, abs=1)
