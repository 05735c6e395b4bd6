"""The constructor of `Broker` checks its parameters: one sentence that names the parameter."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mesh import Broker, ConfigError, Listen

URL = "tcp://127.0.0.1:0"


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ("name", 3),
        ("listen", 5),
        ("listen", [5]),
        ("listen", None),
        ("listen", b"tcp://:1"),
        ("listen", {URL: ()}),
        ("join", 5),
        ("join", [5]),
        ("join", None),
        ("mesh", 3),
        ("mesh", None),
        ("mesh_key", 5),
        ("tls", "x"),
        ("state_dir", 3),
        ("state_dir", ""),
        ("log_dir", b"logs"),
        ("advertise", 5),
        ("export", 5),
        ("export", [5]),
        ("period_s", "1"),
        ("period_s", True),
        ("deadline_s", None),
        ("stats_s", "x"),
        ("log_keep_days", "3"),
        ("log_keep_mb", []),
        ("limits", {}),
        ("environment", 5),
    ],
)
def test_a_value_of_a_wrong_type_is_one_sentence_at_the_constructor(parameter: str, value: Any) -> None:
    """`Broker(listen=5)` said that an int is not iterable. `Broker(state_dir=3)` failed later, in the disk's
    thread. A dict for limits was ignored."""
    with pytest.raises(ConfigError, match=rf"^{parameter} (is|has) .*; it takes ") as refusal:
        Broker(**{parameter: value})
    assert "\n" not in str(refusal.value)


def test_a_mesh_key_of_a_wrong_type_is_not_shown() -> None:
    with pytest.raises(ConfigError) as refusal:
        Broker(mesh_key=["very secret"])  # type: ignore[arg-type]
    assert "secret" not in str(refusal.value)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Listen(5),  # type: ignore[arg-type]
        lambda: Listen(URL, serves="peers"),  # type: ignore[arg-type]
        lambda: Listen(URL, serves=5),  # type: ignore[arg-type]
        lambda: Listen("tls+tcp://:0", tls=5),  # type: ignore[arg-type]
        lambda: Listen("tls+tcp://:0", require_certificate="peers"),  # type: ignore[arg-type]
    ],
)
def test_an_address_of_wrong_types_is_a_config_error(make: Callable[[], Listen]) -> None:
    with pytest.raises(ConfigError):
        make()


def test_one_value_stands_for_a_list_of_one_and_a_path_for_its_text(tmp_path: Path) -> None:
    """`export="news.#"` was taken for seven patterns of one letter."""
    options = Broker(
        listen=URL, join="tcp://a:1", export="news.#", state_dir=tmp_path, log_dir=tmp_path
    ).options
    assert (options.listen, options.join, options.export) == ((Listen(URL),), ("tcp://a:1",), ("news.#",))
    assert (options.state_dir, options.log_dir) == (str(tmp_path), str(tmp_path))
