"""Blocks that are not run are few, have a reason, and are checked as far as that goes."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess

import pytest

from mesh.cli.app import build
from tests.docs.blocks import BLOCKS, LANGUAGES, PAGES, Block
from tests.docs.left_out import LEFT_OUT, is_left_out

COMMAND = re.compile(
    r"^(?:\$ )?(?:mesh|make|pip|python3?|docker|kubectl|cc|curl|nngcat|systemctl) ", re.MULTILINE
)
MISSING = [block for block in BLOCKS if is_left_out(block)]


def test_every_block_says_what_it_is() -> None:
    """Commands hid in blocks of text, which no test runs."""
    assert not [str(block) for block in BLOCKS if block.language not in LANGUAGES]
    fences = sum(len(re.findall(r"^ *```", page.read_text(), re.MULTILINE)) for page in PAGES)
    assert fences == 2 * len(BLOCKS)
    assert not [str(block) for block in BLOCKS if block.language == "text" and COMMAND.search(block.code)]


def test_the_list_names_blocks_that_are_there() -> None:
    for page, beginning in LEFT_OUT:
        assert any(block.name == page and block.code.startswith(beginning) for block in MISSING), (
            page,
            beginning,
        )


@pytest.mark.parametrize("block", [block for block in MISSING if block.language == "python"], ids=str)
def test_parts_of_programs_compile(block: Block) -> None:
    compile(block.code, str(block), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.mark.parametrize("block", [block for block in MISSING if block.language == "sh"], ids=str)
def test_commands_and_flags_exist(block: Block) -> None:
    checked = subprocess.run(["bash", "-n", "-c", block.code], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr
    for line in block.commands():
        words = list(shlex.shlex(line, posix=True, punctuation_chars=True))
        if words[0] != "mesh":
            continue
        words = shlex.split(re.split(r" [<>&|]", line)[0])
        command, bound, *_ = build().parse_args(words[1:], exit_on_error=False, print_error=False)
        assert callable(command) and bound is not None
