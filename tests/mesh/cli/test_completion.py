"""`mesh completion` prints what shells complete commands and flags by."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from mesh.cli.app import COMMANDS, main


@pytest.mark.long
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_command_and_its_flags_are_in_the_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for name, _, _ in COMMANDS:
        assert name in script
    assert "token-file" in script and "context" in script
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=script, text=True, check=True, timeout=60)


@pytest.mark.long
@pytest.mark.skipif(not shutil.which("bash"), reason="bash is not here")
def test_bash_completes_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash"]) == 0
    typed = 'COMP_WORDS=(mesh stat); COMP_CWORD=1; _mesh; echo "${COMPREPLY[@]}"'
    script = f"{capsys.readouterr().out}\n{typed}"
    done = subprocess.run(["bash"], input=script, text=True, check=True, capture_output=True, timeout=60)
    assert done.stdout.split() == ["status"]


def test_another_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "tcsh"]) == 64
    assert "tcsh" in capsys.readouterr().err
