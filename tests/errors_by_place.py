"""Find in the source where the engine makes errors, and which of these places give advice of their own."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import lcp_engine

SOURCE = Path(lcp_engine.__file__).parent
MAKERS = {"LcpError", "Failed", "Interrupted", "PlannerError", "End"}
ADVICE_POSITION = 3


@dataclass(frozen=True, order=True)
class Made:
    """A call that makes an error; `code` is `*` if it is a variable."""

    code: str
    place: str
    has_advice: bool


def made_errors() -> set[Made]:
    """Every error that the engine makes."""
    return {
        made
        for path in SOURCE.rglob("*.py")
        if path != SOURCE / "errors.py"
        for made in _in_tree(
            ast.parse(path.read_text(encoding="utf-8")), str(path.relative_to(SOURCE).with_suffix("")), ()
        )
    }


def _in_tree(node: ast.AST, module: str, within: tuple[str, ...]) -> Iterator[Made]:
    for child in ast.iter_child_nodes(node):
        inner = (*within, child.name) if isinstance(child, ast.FunctionDef | ast.ClassDef) else within
        if isinstance(child, ast.Call) and isinstance(child.func, ast.Name) and child.func.id in MAKERS:
            code = _code(child)
            if code is not None:
                yield Made(code, f"{module}:{'.'.join(within)}", _has_advice(child))
        yield from _in_tree(child, module, inner)


def _code(call: ast.Call) -> str | None:
    stated = [keyword.value for keyword in call.keywords if keyword.arg == "code"]
    if isinstance(call.func, ast.Name) and call.func.id != "End":
        stated += call.args[:1]
    if not stated:
        return None
    named = stated[0]
    if (
        isinstance(named, ast.Attribute)
        and isinstance(named.value, ast.Name)
        and named.value.id == "ErrorCode"
    ):
        return named.attr
    return "*"


def _has_advice(call: ast.Call) -> bool:
    return len(call.args) > ADVICE_POSITION or any(keyword.arg == "advice" for keyword in call.keywords)
