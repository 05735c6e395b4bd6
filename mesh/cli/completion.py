"""``mesh completion``: what a shell needs to complete commands and flags."""

from __future__ import annotations

from typing import Literal

from mesh.cli.exits import ExitCode


def completion(shell: Literal["bash", "zsh", "fish"], /) -> int:
    """Print the completion script of a shell, to be loaded by it.

    Parameters
    ----------
    shell
        bash, zsh or fish.
    """
    from mesh.cli.app import build

    print(build().generate_completion(shell=shell, prog_name="mesh"))
    return ExitCode.OK
