"""An object that is no string is no URL, in whatever call."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols import (
    AddressError,
    Dialer,
    Listener,
    Pull0,
    SharedListener,
    check_dialable,
    check_url,
    is_wildcard,
)
from protocols.transports.base import split_url, url_list

NO_STRINGS = [b"tcp://127.0.0.1:1", bytearray(b"tcp://127.0.0.1:1"), None, 7, ("tcp", 1)]
SENTENCE = "^a URL is a string like 'tcp://host:7000', not "


@pytest.mark.parametrize("url", NO_STRINGS, ids=repr)
@pytest.mark.parametrize("ask", [check_url, check_dialable, is_wildcard, SharedListener])
def test_functions_that_take_a_url(ask: Any, url: Any) -> None:
    with pytest.raises(TypeError, match=SENTENCE):
        ask(url)


@pytest.mark.parametrize("url", NO_STRINGS, ids=repr)
async def test_sockets_and_endpoints(url: Any) -> None:
    async with Pull0() as pull:
        for ask in (
            lambda: pull.dial(url),
            lambda: pull.dial_once(url),
            lambda: pull.listen(url),
            lambda: Dialer(pull, url),
            lambda: Listener(pull, url),
        ):
            with pytest.raises(TypeError, match=SENTENCE):
                asked = ask()
                if asyncio.iscoroutine(asked):
                    await asked


@pytest.mark.parametrize("url", [b"tcp://127.0.0.1:1", 7, [b"tcp://127.0.0.1:1"], ["tcp://127.0.0.1:1", 7]])
@pytest.mark.parametrize("way", ["dial", "listen"])
def test_constructors(way: str, url: Any) -> None:
    with pytest.raises(TypeError, match=SENTENCE):
        Pull0(**{way: url})


def test_one_url_or_several() -> None:
    assert url_list("tcp://a:1") == ["tcp://a:1"]
    assert url_list(()) == []
    assert url_list(iter(["tcp://a:1", "ipc://b"])) == ["tcp://a:1", "ipc://b"]


@given(st.one_of(st.text(max_size=50), st.binary(max_size=50)))
def test_any_object_is_a_url_or_an_error_that_describes_urls(url: Any) -> None:
    try:
        check_url(url)
        scheme, address = split_url(url)
    except AddressError as error:
        assert str(error)
    except TypeError as error:
        assert not isinstance(url, str) and "a URL is a string" in str(error)
    else:
        assert f"{scheme}://{address}" == url
