"""Help is shown in paragraphs, whatever the width of the docstring and of the terminal."""

from __future__ import annotations

import pytest
from cyclopts import App
from rich.console import Console

from mesh.cli.help import Paragraphs


def _shown(app: App, capsys: pytest.CaptureFixture[str]) -> str:
    app("--help", console=Console(width=80, force_terminal=False), result_action="return_value")
    return capsys.readouterr().out


def test_lines_of_a_docstring_become_paragraphs_and_indented_ones_stay(
    capsys: pytest.CaptureFixture[str],
) -> None:
    app = App(help_format="plaintext", help_formatter=Paragraphs())

    @app.default
    def command(*, out: str = "") -> None:
        """Say it.

        One line
        and its next.

            an example
            of two lines

        Parameters
        ----------
        out
            Where it
            goes.
        """

    shown = _shown(app, capsys)
    assert "One line and its next." in shown
    assert "an example\n" in shown and "of two lines\n" in shown
    assert "Where it goes." in shown


def test_defaults_that_say_nothing_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    app = App(help_format="plaintext", help_formatter=Paragraphs())

    @app.default
    def command(
        *, json: bool = False, conf: tuple[str, ...] = (), out: str = "", window: float = 5.0
    ) -> None:
        """Say it."""

    assert [line for line in _shown(app, capsys).splitlines() if "default" in line] == [
        line for line in _shown(app, capsys).splitlines() if "window" in line
    ]
