"""The keys about HTTP become an address, readers and a password."""

from __future__ import annotations

from pathlib import Path

import pytest

from mesh import ConfigError, HttpListen, config
from mesh.config import BrokerConfig, http_listen


def test_http_is_off_without_an_address() -> None:
    assert http_listen(BrokerConfig(http_readers="anybody")) is None


def test_readers_are_this_host_everybody_or_holders_of_the_password(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("swordfish ü\n")
    assert http_listen(BrokerConfig(http="9770")) == HttpListen("9770")
    assert http_listen(BrokerConfig(http=":9770", http_readers="anybody", http_hosts=("a",))) == HttpListen(
        ":9770", anybody=True, hosts=("a",)
    )
    asked = http_listen(BrokerConfig(http=":9770", http_readers=str(file)))
    assert asked == HttpListen(":9770", password="swordfish ü")


@pytest.mark.parametrize(
    ("content", "said"), [(None, "No such file"), (b"\n", "is empty"), (b"\xff", "not UTF-8")]
)
def test_a_password_file_that_cannot_be_used_is_one_sentence(
    tmp_path: Path, content: bytes | None, said: str
) -> None:
    file = tmp_path / "password"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match=said) as refusal:
        http_listen(BrokerConfig(http="9770", http_readers=str(file)))
    assert str(file) in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('http = "nowhere"', "has a bad address"),
        ('http = "tcp://127.0.0.1:80"', "has a bad address"),
        ('http_readers = "everybody"', "takes local, anybody or the path"),
        ('log_format = "xml"', "takes text, json"),
        ('log_level = "loud"', "takes debug, info, warning, error"),
    ],
)
def test_an_invalid_value_is_reported_with_its_line(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as refusal:
        config.parse(f"[broker]\n{text}\n", "mangrove.toml")
    assert str(refusal.value).startswith("mangrove.toml:2: broker.")
