"""Find in the source where the engine makes errors, and which of these places state advice."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import lcp_engine

SOURCE = Path(lcp_engine.__file__).parent
CODED = {"End", "Problem"}
"""They have no advice of their own, and a code only by its name."""
MAKERS = {"LcpError", "Failed", "Interrupted", "PlannerError", *CODED}
MESSAGE_POSITION, ADVICE_POSITION = 1, 3
A_FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


@dataclass(frozen=True)
class Made:
    """A call that makes an error."""

    code: str
    """Its name, or the expression that gives it."""
    states_advice: bool
    """Its own, or `GENERAL`."""
    names_something: bool
    """Its message contains more than fixed words."""
    place: str


def made_errors() -> Iterator[Made]:
    """Every error that the engine makes."""
    for path in sorted(SOURCE.rglob("*.py")):
        if path != SOURCE / "errors.py":
            yield from made_in(path.read_text(encoding="utf-8"), str(path.relative_to(SOURCE)))


def made_in(text: str, file: str) -> Iterator[Made]:
    yield from _in_tree(ast.parse(text), file, {})


def _in_tree(node: ast.AST, file: str, fixed: dict[str, bool]) -> Iterator[Made]:
    """`fixed` knows of each local variable whether it was assigned nothing but fixed words."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Call) and _name(child.func) in MAKERS:
            code = _argument(child, "code", None if _name(child.func) in CODED else 0)
            if code is not None:
                message = _argument(child, "message", MESSAGE_POSITION)
                advice = _argument(child, "advice", ADVICE_POSITION)
                yield Made(
                    ast.unparse(code).removeprefix("ErrorCode."),
                    advice is not None,
                    not _is_fixed(message, fixed),
                    f"{file}:{child.lineno}",
                )
        yield from _in_tree(child, file, _assigned_in(child) if isinstance(child, A_FUNCTION) else fixed)


def _name(function: ast.expr) -> str | None:
    match function:
        case ast.Name(name) | ast.Attribute(attr=name):
            return name
        case _:
            return None


def _argument(call: ast.Call, name: str, position: int | None) -> ast.expr | None:
    stated = [keyword.value for keyword in call.keywords if keyword.arg == name]
    if position is not None:
        stated += call.args[position : position + 1]
    return stated[0] if stated else None


def _is_fixed(message: ast.expr | None, fixed: dict[str, bool]) -> bool:
    match message:
        case ast.Constant():
            return True
        case ast.Name(name):
            return fixed.get(name, False)
        case _:
            return False


def _assigned_in(function: ast.AST) -> dict[str, bool]:
    fixed: dict[str, bool] = {}
    for node in ast.walk(function):
        match node:
            case ast.Assign([ast.Name(name)], value):
                fixed[name] = fixed.get(name, True) and isinstance(value, ast.Constant)
            case _:
                pass
    return fixed
