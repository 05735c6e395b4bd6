"""Options are checked when they are made, in one sentence that says what is allowed."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols import SocketOptions

NAMES = [field.name for field in fields(SocketOptions)]
COUNTS = ["send_queue", "recv_queue", "read_budget"]
SWITCHES = ["prefer_new", "best_effort", "fail_without_peers", "nodelay", "keepalive"]
TIMES = [name for name in NAMES if name.endswith("_s") and name != "keepalive_s"]
FOR_EVER = ["send_timeout_s", "recv_timeout_s", "linger_s", "resend_s", "happy_eyeballs_delay_s"]


def test_the_defaults_are_those_of_the_page() -> None:
    options = SocketOptions()
    assert (options.send_queue, options.recv_queue, options.recv_size_max) == (1024, 1024, 1 << 20)
    assert (options.ttl, options.resend_s, options.survey_s) == (8, 60.0, 1.0)
    assert (options.reconnect_min_s, options.reconnect_max_s, options.handshake_timeout_s) == (
        0.1,
        10.0,
        10.0,
    )
    assert not options.best_effort and not options.fail_without_peers and options.prefer_new


def test_an_unknown_option_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="colour"):
        SocketOptions(colour="blue")  # type: ignore[call-arg]


@pytest.mark.parametrize("value", ["4", None, 1.5, [], True])
@pytest.mark.parametrize("name", [*COUNTS, "recv_size_max", "ttl", "ipc_permissions"])
def test_a_number_of_another_type_is_a_type_error(name: str, value: Any) -> None:
    with pytest.raises(TypeError, match=f"^{name} is a whole number, not "):
        SocketOptions(**{name: value})


@pytest.mark.parametrize("value", ["yes", 1, 0, None])
@pytest.mark.parametrize("name", SWITCHES)
def test_a_switch_is_true_or_false(name: str, value: Any) -> None:
    with pytest.raises(TypeError, match=f"^{name} is True or False, not "):
        SocketOptions(**{name: value})


@pytest.mark.parametrize("name", TIMES)
def test_a_time_is_a_number_of_seconds(name: str) -> None:
    for wrong in ("1", True, []):
        with pytest.raises(TypeError, match=f"^{name} is a number of seconds"):
            SocketOptions(**{name: wrong})  # type: ignore[arg-type]
    for wrong in (-0.1, math.inf, math.nan, 10**400):
        with pytest.raises(ValueError, match=f"^{name} is .*; it must be "):
            SocketOptions(**{name: wrong})  # type: ignore[arg-type]
    assert getattr(SocketOptions(**{name: 2}), name) == 2  # type: ignore[arg-type]
    if name in FOR_EVER:
        assert getattr(SocketOptions(**{name: None}), name) is None  # type: ignore[arg-type]
    else:
        with pytest.raises(TypeError, match=f"^{name} is a number of seconds, not None"):
            SocketOptions(**{name: None})  # type: ignore[arg-type]


def test_a_handshake_needs_time() -> None:
    with pytest.raises(
        ValueError, match="handshake_timeout_s is 0; it must be more than 0 and at most 1e9 seconds"
    ):
        SocketOptions(handshake_timeout_s=0)


@pytest.mark.parametrize("name", COUNTS)
def test_a_queue_holds_one_message_at_least(name: str) -> None:
    for wrong in (0, -1):
        with pytest.raises(ValueError, match=f"^{name} is {wrong}; it must be "):
            SocketOptions(**{name: wrong})  # type: ignore[arg-type]
    assert getattr(SocketOptions(**{name: 1}), name) == 1  # type: ignore[arg-type]


@pytest.mark.parametrize("ttl", [0, -1, 256])
def test_the_ttl_is_a_byte(ttl: int) -> None:
    with pytest.raises(ValueError, match=f"ttl is {ttl}; it must be from 1 to 255"):
        SocketOptions(ttl=ttl)


def test_the_receive_limit_may_be_off_but_not_negative() -> None:
    assert SocketOptions(recv_size_max=0).recv_size_max == 0
    assert SocketOptions(recv_size_max=1024).recv_size_max == 1024
    with pytest.raises(ValueError, match="recv_size_max is -1; it must be 0 or more"):
        SocketOptions(recv_size_max=-1)


def test_permissions_are_shown_in_octal() -> None:
    with pytest.raises(ValueError, match="ipc_permissions is 0o1000; it must be from 0o0 to 0o777"):
        SocketOptions(ipc_permissions=0o1000)


@pytest.mark.parametrize("value", ["https://app.example", ["https://app.example"], (1,), None])
def test_origins_are_a_tuple_of_strings(value: Any) -> None:
    with pytest.raises(TypeError, match="ws_origins is a tuple of strings, not "):
        SocketOptions(ws_origins=value)


def test_replacing_one_checks_again() -> None:
    with pytest.raises(ValueError, match="ttl"):
        replace(SocketOptions(), ttl=1000)


@given(st.sampled_from(NAMES), st.one_of(st.integers(), st.floats(), st.text(), st.none(), st.booleans()))
def test_any_value_is_kept_or_refused_in_one_sentence(name: str, value: Any) -> None:
    try:
        assert getattr(SocketOptions(**{name: value}), name) is value
    except (TypeError, ValueError) as error:
        assert str(error).startswith(f"{name} is ")
        assert "\n" not in str(error)
