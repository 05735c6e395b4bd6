"""The guard decides who may read: methods, hosts, pages of other sites, other hosts, passwords."""

from __future__ import annotations

from base64 import b64encode
from http import HTTPStatus

import pytest

from mesh import ConfigError
from mesh.http.guard import Guard
from mesh.http.messages import Request
from mesh.listen import HttpListen

CLOSED = HttpListen("127.0.0.1:9770")


def refused(
    listen: HttpListen = CLOSED,
    path: str = "/metrics",
    method: str = "GET",
    *,
    local: bool = True,
    **headers: str,
) -> int | None:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    request = Request(method, path, {"host": "127.0.0.1:9770", **named}, local)
    refusal = Guard(listen, "node7").refusal(request)
    return None if refusal is None else int(refusal.status)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "PRI", "get"])
def test_methods_other_than_get_and_head_are_refused(method: str) -> None:
    assert refused(method=method) == HTTPStatus.METHOD_NOT_ALLOWED


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.0.0.1:9770",
        "[::1]:9770",
        "10.1.2.3:80",
        "localhost:9770",
        "LOCALHOST.",
        "node7:9770",
    ],
)
def test_addresses_and_own_names_are_served(host: str) -> None:
    assert refused(host=host) is None


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:9770", "localhost.evil.example", "[evil]", "a b"]
)
def test_a_foreign_host_name_that_resolves_to_this_host_is_refused(host: str) -> None:
    """DNS rebinding: to the browser, the page that asks and this broker have one name."""
    assert refused(host=host, path="/") == HTTPStatus.MISDIRECTED_REQUEST
    assert refused(host=host, path="/livez") == HTTPStatus.MISDIRECTED_REQUEST
    listed = HttpListen("127.0.0.1:9770", hosts=("evil.example",))
    assert (refused(listed, host=host) is None) == host.startswith("evil.example")


def test_a_request_without_a_host_is_from_no_browser() -> None:
    assert refused(host="") is None


def test_pages_of_other_sites_may_not_read() -> None:
    assert refused(origin="http://evil.example") == HTTPStatus.FORBIDDEN
    assert refused(origin="null") == HTTPStatus.FORBIDDEN
    assert refused(origin="http://[") == HTTPStatus.FORBIDDEN
    assert refused(origin="http://127.0.0.1:9770") is None
    assert refused(origin="http://127.0.0.1:8080") == HTTPStatus.FORBIDDEN, "another port is another site"


def test_a_request_that_a_browser_marks_as_another_sites_is_refused_but_a_link_is_followed() -> None:
    """Browsers send no Origin with a plain GET, so an image or a stream on another site came through."""
    assert refused(path="/live", sec_fetch_site="cross-site") == HTTPStatus.FORBIDDEN
    assert refused(path="/live", sec_fetch_site="same-site") == HTTPStatus.FORBIDDEN
    assert refused(path="/live", sec_fetch_site="same-origin") is None
    link = {"sec_fetch_mode": "navigate", "sec_fetch_dest": "document"}
    assert refused(path="/", sec_fetch_site="cross-site", **link) is None
    frame = {"sec_fetch_mode": "navigate", "sec_fetch_dest": "iframe"}
    assert refused(path="/", sec_fetch_site="cross-site", **frame) == HTTPStatus.FORBIDDEN


def test_other_hosts_may_read_only_the_health() -> None:
    for path in ("/", "/metrics", "/status.json", "/live", "/nothing"):
        assert refused(path=path, local=False) == HTTPStatus.FORBIDDEN
    for path in ("/livez", "/readyz"):
        assert refused(path=path, local=False) is None
    assert refused(HttpListen(":9770", anybody=True), local=False) is None


def test_a_password_is_required_of_all_clients_and_accepted_in_both_forms() -> None:
    listen = HttpListen(":9770", password="swordfish ü")
    assert "swordfish" not in repr(listen)
    assert refused(listen) == refused(listen, local=False) == HTTPStatus.UNAUTHORIZED
    assert refused(listen, path="/livez", local=False) is None
    basic = b64encode("anyone:swordfish ü".encode()).decode()
    assert refused(listen, authorization=f"Basic {basic}", local=False) is None
    token = "swordfish ü".encode().decode("latin-1")  # as a header is read
    assert refused(listen, authorization=f"Bearer {token}", local=False) is None


@pytest.mark.parametrize(
    "given",
    ["", "Basic", "Basic !", "Basic YQ==", "Bearer", "Bearer wrong", "Digest x", "Basic /w==", "\x00"],
)
def test_a_malformed_or_wrong_password_is_refused(given: str) -> None:
    assert refused(HttpListen("9770", password="swordfish"), authorization=given) == HTTPStatus.UNAUTHORIZED


def test_an_address_that_cannot_be_is_one_sentence() -> None:
    assert HttpListen("9770").target == "127.0.0.1:9770"
    for address in ("", "x", "99999", "host:port", "http://127.0.0.1:80", "127.0.0.1:80/path", "::1:80"):
        with pytest.raises(ConfigError, match=r"^http ") as refusal:
            HttpListen(address)
        assert "\n" not in str(refusal.value) and "tcp://" not in str(refusal.value)
    with pytest.raises(ConfigError, match="choose"):
        HttpListen("9770", password="x", anybody=True)
