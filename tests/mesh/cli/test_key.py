"""``mesh key``: what it writes proves, what it prints is configured, and nothing is overwritten."""

from __future__ import annotations

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
def test_a_key_or_token_that_was_made_proves_what_was_printed(
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
def test_a_file_that_is_there_is_left_alone(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "secret"
    file.write_text("mine")
    assert main(["key", command, str(file)]) == ExitCode.FAILED
    assert file.read_text() == "mine"
    assert "exists and is left as it is" in capsys.readouterr().err
    assert main(["key", command, str(tmp_path / "no" / "folder")]) == ExitCode.CANNOT_CREATE


def test_what_is_neither_key_nor_token_is_said_to_be_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "notes"
    file.write_text("some notes, of more than a few bytes")
    assert main(["key", "show", str(file)]) == ExitCode.CONFIG
    assert "is no token: it has white space inside" in capsys.readouterr().err
    assert main(["key", "show", str(tmp_path / "none")]) == ExitCode.NO_INPUT
