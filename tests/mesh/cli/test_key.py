"""``mesh key``: what it writes proves, what it prints is configured, and nothing is overwritten."""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path

import pytest

from mesh.access import proofs
from mesh.cli.app import main
from mesh.cli.exits import ExitCode
from mesh.clients.credentials import credential_of
from mesh.config import load


@pytest.mark.parametrize(("command", "kind", "flag"), [("new", "keys", 0), ("token", "tokens", 1)])
def test_a_new_key_or_token_matches_the_printed_configuration(
    command: str, kind: str, flag: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "secret"
    assert main(["key", command, str(file)]) == ExitCode.OK
    printed, told = capsys.readouterr()
    text = printed.strip()
    assert f'{kind} = ["{text}"]' in told
    assert stat.S_IMODE(os.stat(file).st_mode) == 0o600
    assert main(["key", "show", str(file)]) == ExitCode.OK
    assert capsys.readouterr().out.strip() == text
    found = credential_of(None if flag else file, file if flag else None)
    assert found is not None
    if flag:
        stored = proofs.read_token(text)
        assert found.claim[1] == proofs.token_id(stored)
        assert proofs.check_token(stored, b"about", found.prove(b"about"))
    else:
        assert found.claim[1] == proofs.read_key(text)
    config = tmp_path / "mangrove.toml"
    config.write_text(f'[principals.alice]\n{kind} = ["{text}"]\npublish = ["#"]\n')
    assert getattr(load(path=str(config), environ={}).config.principals[0], kind) == (text,)


@pytest.mark.parametrize("command", ["new", "token"])
def test_an_existing_file_is_not_overwritten(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "secret"
    file.write_text("mine")
    assert main(["key", command, str(file)]) == ExitCode.FAILED
    assert file.read_text() == "mine"
    assert "exists and is left as it is" in capsys.readouterr().err
    assert main(["key", command, str(tmp_path / "no" / "folder")]) == ExitCode.CANNOT_CREATE


def test_a_file_that_is_neither_key_nor_token_is_named_as_such(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "notes"
    file.write_text("some notes, of more than a few bytes")
    assert main(["key", "show", str(file)]) == ExitCode.CONFIG
    assert "is no token: it has white space inside" in capsys.readouterr().err
    assert main(["key", "show", str(tmp_path / "none")]) == ExitCode.NO_INPUT


def test_config_show_prints_principals_as_sections_and_as_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mangrove.toml"
    path.write_text('[principals.alice]\ncertificates = ["a"]\npublish = ["news.#"]\nrate_max = 5\n')
    assert main(["config", "show", "--config", str(path)]) == ExitCode.OK
    shown = capsys.readouterr().out
    assert '\n[principals.alice]\ncertificates = ["a"]\npublish = ["news.#"]\nrate_max = 5\n' in shown
    assert main(["config", "show", "--json", "--config", str(path)]) == ExitCode.OK
    document = json.loads(capsys.readouterr().out)
    assert document["principals"] == {"alice": {"certificates": ["a"], "publish": ["news.#"], "rate_max": 5}}
    assert main(["config", "check", str(path)]) == ExitCode.OK


def test_config_check_names_every_mistake_in_principals(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mangrove.toml"
    path.write_text(
        '[principals.alice]\npublsh = ["a"]\n\n[principals.bob]\nrate_max = 0\npublish = ["a..b"]\n'
    )
    assert main(["config", "check", str(path)]) == ExitCode.CONFIG
    told = capsys.readouterr().err
    for line in (
        "mangrove.toml:2: unknown key 'publsh' in [principals.alice]; did you mean 'publish'?",
        "mangrove.toml:5: principals.bob.rate_max must be a number",
        "mangrove.toml:6: principals.bob.publish has a bad pattern",
    ):
        assert line in told


def test_an_address_that_is_not_listened_on_cannot_demand_a_proof(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mangrove.toml"
    path.write_text('[broker]\nlisten = ["tcp://127.0.0.1:7770"]\nrequire_proof = ["tcp://127.0.0.1:7771"]\n')
    assert main(["config", "check", str(path)]) == ExitCode.CONFIG
    assert "require_proof names tcp://127.0.0.1:7771, where no clients are served" in capsys.readouterr().err


def test_the_files_of_a_client_come_from_variables_flags_and_the_file(tmp_path: Path) -> None:
    path = tmp_path / "mangrove.toml"
    path.write_text('[client]\nkey_file = "from-the-file"\n')
    assert load(path=str(path), environ={}).config.client.key_file == "from-the-file"
    environ = {"MANGROVE_KEY_FILE": "a", "MANGROVE_TOKEN_FILE": "b"}
    client = load(path=str(path), environ=environ).config.client
    assert (client.key_file, client.token_file) == ("a", "b")
    flags = {"client.key_file": "c"}
    assert load(flags, path=str(path), environ=environ).config.client.key_file == "c"


def test_a_full_disk_is_named_and_leaves_no_half_of_a_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It said that standard output could not be written, and left an empty file that the next try refused."""

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    file = tmp_path / "secret"
    assert main(["key", "token", str(file)]) == ExitCode.CANNOT_CREATE
    assert f"{file}: No space left on device; make room" in " ".join(capsys.readouterr().err.split())
    assert not file.exists()
