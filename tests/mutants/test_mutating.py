"""Which small bugs are put into a module."""

from __future__ import annotations

import ast

import pytest

from tests.mutants.mutating import mutants_of, mutated

SOURCE = '''
"""A module."""
from __future__ import annotations

LIMIT = 10

class Counter:
    __slots__ = ("n",)

    def __init__(self) -> None:
        """Nothing yet."""
        self.n = 0

    def __repr__(self) -> str:
        return f"<{self.n + 1}>"

    def add(self, more: int, most: int = 5) -> bool:
        if more < most and not self.n:
            self.n += more
            self.log(more, "x")
            return True
        if more > LIMIT:
            raise ValueError(f"{more} is above {LIMIT + 0}")
        return min(more, most) == most

    async def wait(self) -> None:
        while True:
            await self.event()
            break
'''


def ids() -> list[str]:
    return [mutant.id for mutant in mutants_of(SOURCE)]


@pytest.mark.parametrize(
    "id",
    [
        "module: LIMIT = 10 -> LIMIT = 11",
        "Counter.__init__: self.n = 0 -> nothing",
        "Counter.__init__: self.n = 0 -> self.n = 1",
        "Counter.add: 5 -> 6",
        "Counter.add: more < most -> more <= most",
        "Counter.add: more < most and (not self.n) -> more < most or not self.n",
        "Counter.add: more < most and (not self.n) -> not (more < most and (not self.n))",
        "Counter.add: not self.n -> self.n",
        "Counter.add: self.n += more -> nothing",
        "Counter.add: self.n += more -> self.n -= more",
        "Counter.add: self.log(more, 'x') -> nothing",
        "Counter.add: self.log(more, 'x') -> self.log('x', more)",
        "Counter.add: return True -> return None",
        "Counter.add: return True -> return False",
        "Counter.add: raise ValueError(f'{more} is above {LIMIT + 0}') -> nothing",
        "Counter.add: min(more, most) -> max(more, most)",
        "Counter.add: min(more, most) == most -> min(more, most) != most",
        "Counter.wait: await self.event() -> nothing",
        "Counter.wait: await self.event() -> self.event()",
        "Counter.wait: break -> nothing",
    ],
)
def test_each_kind_of_change_is_made_once(id: str) -> None:
    assert ids().count(id) == 1
    changed = mutated(SOURCE, id)
    assert ast.unparse(changed) != ast.unparse(ast.parse(SOURCE))
    compile(changed, "changed", "exec")


def test_code_that_no_test_should_depend_on_is_not_mutated() -> None:
    for text in ("__slots__", "Nothing yet", "A module", "__repr__", "LIMIT + 0 ->", "annotations"):
        assert not any(text in id for id in ids()), text


def test_each_mutant_differs_from_the_others_and_leaves_the_source_as_it_was() -> None:
    sources = [ast.unparse(mutated(SOURCE, id)) for id in ids()]
    assert len(set(sources)) == len(sources) == len(set(ids()))
    assert ids() == ids()


def test_equal_changes_in_one_function_are_counted() -> None:
    source = "def f(a):\n    g(a)\n    g(a)\n"
    assert [mutant.id for mutant in mutants_of(source)] == ["f: g(a) -> nothing", "f: g(a) -> nothing (2)"]
    assert ast.unparse(mutated(source, "f: g(a) -> nothing (2)")) == "def f(a):\n    g(a)\n    pass"


def test_an_unknown_mutant_is_an_error() -> None:
    with pytest.raises(LookupError, match="no mutant 'x'"):
        mutated(SOURCE, "x")
