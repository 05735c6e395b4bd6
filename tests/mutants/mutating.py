"""Small bugs for a module: every way to change one place of its syntax tree. Pure.

The changes are mistakes that people make and reviewers miss: a comparison that is off by one, an inverted
condition, a missing statement, a constant off by one, arguments in the wrong order, a result that is not
returned, a coroutine that is not awaited. Parts that no test should depend on are left alone: annotations,
docstrings, the words of errors, ``__slots__``, ``__repr__`` and code that only type checkers read.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

COMPARISONS: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
OPERATORS: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.Add,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitOr,
}
NAMES: Final = {"min": "max", "max": "min", "any": "all", "all": "any"}
SHOWN_MAX: Final = 120


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of one module."""

    id: str
    """Function, what was there, what is there instead; the same as long as the function says the same."""
    line: int


def mutants_of(source: str) -> list[Mutant]:
    """Every mutant of a module, in the order of its lines."""
    return sorted((mutant for mutant, _ in _walk(ast.parse(source))), key=lambda mutant: mutant.line)


def mutated(source: str, id: str) -> ast.Module:
    """The module with the change of that id. Raises LookupError if there is none."""
    tree = ast.parse(source)
    for mutant, change in _walk(tree):
        if mutant.id == id:
            change()
            return ast.fix_missing_locations(tree)
    raise LookupError(f"there is no mutant {id!r}")


def _walk(tree: ast.Module) -> Iterator[tuple[Mutant, Callable[[], object]]]:
    seen: Counter[str] = Counter()
    for where, node, change in _places(tree):
        before = _shown(node)
        undo = change()
        id = f"{where}: {before} -> {_shown(node)}"
        undo()
        seen[id] += 1
        yield Mutant(id if seen[id] == 1 else f"{id} ({seen[id]})", getattr(node, "lineno", 0)), change


Undo = Callable[[], None]
Place = tuple[str, ast.AST, Callable[[], Undo]]
"""Name of the function around it, the node that shows the change, and what makes it."""


def _places(tree: ast.Module) -> Iterator[Place]:
    yield from _in_body(tree, "module")


def _in_body(owner: ast.AST, where: str) -> Iterator[Place]:
    """Places in the statements of a module, class or function, and below."""
    for field in ("body", "orelse", "finalbody"):
        body = getattr(owner, field, None)
        if isinstance(body, list):
            for index, statement in enumerate(body):
                if not _is_left_alone(statement):
                    yield from _in_statement(body, index, where)
    for handler in getattr(owner, "handlers", ()):
        yield from _in_body(handler, where)
    for case in getattr(owner, "cases", ()):
        if case.guard is not None:
            yield from _in_expression(case, "guard", where)
        yield from _in_body(case, where)


def _is_left_alone(statement: ast.stmt) -> bool:
    match statement:
        case ast.Expr(value=ast.Constant()) | ast.Import() | ast.ImportFrom() | ast.Pass() | ast.Assert():
            return True
        case ast.Assign(targets=[ast.Name(id="__slots__" | "__all__")]):
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case ast.FunctionDef(name="__repr__"):
            return True
        case ast.ClassDef(bases=[ast.Name(id="Protocol")]):
            return True
    return False


def _in_statement(body: list[ast.stmt], index: int, where: str) -> Iterator[Place]:
    statement = body[index]
    match statement:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            inner = statement.name if where == "module" else f"{where}.{statement.name}"
            if isinstance(statement, ast.ClassDef):
                yield from _in_body(statement, inner)
            else:
                for position, _ in enumerate(statement.args.defaults):
                    yield from _in_item(statement.args.defaults, position, inner)
                yield from _in_body(statement, inner)
            return
        case ast.Raise():
            if where != "module":
                yield where, statement, _drop(body, index)
            return  # the words of an error are no behaviour
        case ast.Return(value=value) if value is not None and not _is_none(value):
            yield where, statement, _replace(statement, "value", ast.Constant(None))
        case ast.Expr() | ast.AugAssign() | ast.Delete() | ast.Continue() | ast.Break():
            if where != "module":
                yield where, statement, _drop(body, index)
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript(), *_]):
            yield where, statement, _drop(body, index)
    if isinstance(statement, ast.AugAssign) and type(statement.op) in OPERATORS:
        yield where, statement, _replace(statement, "op", OPERATORS[type(statement.op)]())
    if isinstance(statement, ast.If | ast.While):
        yield where, statement.test, _negate(statement, "test")
    for field in ("test", "value", "iter", "targets", "items"):
        if isinstance(statement, ast.Match) or not hasattr(statement, field):
            continue
        if isinstance(statement, ast.AnnAssign) and field != "value":
            continue
        context = statement if field in ("value", "targets") else getattr(statement, field)
        for place, node, change in _in_expression(statement, field, where):
            # a number says nothing by itself
            yield (
                place,
                context if isinstance(node, ast.Constant) and isinstance(context, ast.AST) else node,
                change,
            )
    if isinstance(statement, ast.Match):
        yield from _in_expression(statement, "subject", where)
    yield from _in_body(statement, where)


def _in_expression(owner: ast.AST, field: str, where: str) -> Iterator[Place]:
    value = getattr(owner, field)
    if isinstance(value, list):
        for index, item in enumerate(value):
            if isinstance(item, ast.expr):
                yield from _in_item(value, index, where)
            elif isinstance(item, ast.AST):
                yield from _below(item, where)
        return
    if isinstance(value, ast.expr):
        yield from _changes(value, where, lambda new: _replace(owner, field, new))
        yield from _below(value, where)


def _in_item(items: list[ast.expr], index: int, where: str) -> Iterator[Place]:
    def replace(new: ast.expr) -> Callable[[], Undo]:
        return _replace_item(items, index, new)

    yield from _changes(items[index], where, replace)
    yield from _below(items[index], where)


def _below(node: ast.AST, where: str) -> Iterator[Place]:
    """Places in the parts of an expression."""
    if isinstance(node, ast.JoinedStr):
        return
    for field, value in ast.iter_fields(node):
        if isinstance(value, ast.expr | list) and not (isinstance(node, ast.Constant)):
            yield from _in_expression(node, field, where)
        elif isinstance(value, ast.arguments):
            yield from _in_expression(value, "defaults", where)


def _changes(
    node: ast.expr, where: str, replace: Callable[[ast.expr], Callable[[], Undo]]
) -> Iterator[Place]:
    """The changes of one expression itself; ``replace`` puts another one in its place."""
    match node:
        case ast.Compare():
            for index, operator in enumerate(node.ops):
                other = COMPARISONS[type(operator)]()
                yield where, node, _replace_item(node.ops, index, other)
        case ast.BinOp() if type(node.op) in OPERATORS and not _is_text(node):
            yield where, node, _replace(node, "op", OPERATORS[type(node.op)]())
        case ast.BoolOp():
            yield where, node, _replace(node, "op", ast.Or() if isinstance(node.op, ast.And) else ast.And())
        case ast.UnaryOp(op=ast.Not()):
            yield where, _Shown(node, node.operand), replace(node.operand)
        case ast.IfExp():
            yield where, node, _negate(node, "test")
        case ast.Await():
            yield where, _Shown(node, node.value), replace(node.value)
        case ast.Constant(value=bool() as value):
            yield where, node, _replace(node, "value", not value)
        case ast.Constant(value=int() | float() as value):
            yield where, node, _replace(node, "value", value + 1)
        case ast.Call(func=ast.Name(id=name)) if name in NAMES:
            yield where, node, _replace(node.func, "id", NAMES[name])
    if isinstance(node, ast.Call) and len(node.args) > 1 and not isinstance(node.args[0], ast.Starred):
        first, second, *rest = node.args
        if ast.dump(first) != ast.dump(second) and not isinstance(second, ast.Starred):
            yield where, node, _replace(node, "args", [second, first, *rest])


class _Shown(ast.AST):
    """An expression that another one replaces: which of both is shown depends on where the change stands."""

    def __init__(self, before: ast.expr, after: ast.expr) -> None:
        super().__init__()
        self.lineno = before.lineno
        self.before, self.after = before, after
        self.changed = False


def _shown(node: ast.AST) -> str:
    if isinstance(node, _Shown):
        node.changed = not node.changed
        text = ast.unparse(node.before if node.changed else node.after)
    elif getattr(node, "dropped", False):
        text = "nothing"
    elif getattr(node, "negated", False):
        text = f"not ({ast.unparse(node)})"
    else:
        text = ast.unparse(node)
    text = " ".join(text.split())
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}..."


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_text(node: ast.BinOp) -> bool:
    return any(
        isinstance(side, ast.JoinedStr | ast.Constant) and not _is_number(side)
        for side in (node.left, node.right)
    )


def _is_number(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float)


# --- changes, each with what takes it back


def _replace(owner: ast.AST, field: str, new: object) -> Callable[[], Undo]:
    def change() -> Undo:
        old = getattr(owner, field)
        setattr(owner, field, new)
        return lambda: setattr(owner, field, old)

    return change


def _replace_item(items: list[Any], index: int, new: object) -> Callable[[], Undo]:
    def change() -> Undo:
        old = items[index]
        items[index] = new

        def undo() -> None:
            items[index] = old

        return undo

    return change


def _negate(owner: ast.AST, field: str) -> Callable[[], Undo]:
    """Turn a condition round. It is shown as it stands in the tree, so the old node is changed in place."""

    def change() -> Undo:
        old = getattr(owner, field)
        setattr(owner, field, ast.UnaryOp(ast.Not(), old))
        old.negated = True

        def undo() -> None:
            setattr(owner, field, old)
            del old.negated

        return undo

    return change


def _drop(body: list[ast.stmt], index: int) -> Callable[[], Undo]:
    def change() -> Undo:
        old = body[index]
        body[index] = ast.copy_location(ast.Pass(), old)
        old.dropped = True  # type: ignore[attr-defined]

        def undo() -> None:
            body[index] = old
            del old.dropped  # type: ignore[attr-defined]

        return undo

    return change
