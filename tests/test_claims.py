"""What docs and docstrings claim about the source is checked here, and what is for people cites nothing internal."""

from __future__ import annotations

import ast
import json
import re
import tomllib
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import click
import pytest
from tests.tables import row, table

import lcp_engine
from lcp_engine.cli.app import lcp

SOURCE = Path(lcp_engine.__file__).parent
PROJECT = SOURCE.parent.parent
MODULES = sorted(path for path in SOURCE.rglob("*.py"))


@cache
def trees() -> dict[str, ast.Module]:
    """Each module by its name in the package. Read once, and not before a test wants it."""
    return {
        path.relative_to(SOURCE).with_suffix("").as_posix(): ast.parse(path.read_text()) for path in MODULES
    }


# -- Pure


OUTSIDE = {
    "os", "io", "pathlib", "time", "random", "secrets", "socket", "select", "threading", "subprocess", "shutil",
    "tempfile", "fcntl", "mmap", "logging", "sys", "sqlalchemy", "sqlite3", "importlib",
}  # fmt: skip
"""Modules with which a program reads or changes something that is not its argument."""
NOT_PURE = {"datetime.now", "date.today", "uuid4", "open"}
PURE_FUNCTIONS = {
    "encoding_of",
    "names_of",
    "about_tokens",
    "absent",
    "added",
    "available",
    "installed",
    "asked_in",
    "fields_of",
    "load",
}
"""Functions without a side effect in modules that have others."""


CONTRACTS = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
(PURE_RULES,) = (one["source_modules"] for one in CONTRACTS if one["name"].endswith("are pure"))
"""The core, and modules of features that import-linter holds to what it may import."""


def is_called_pure(module: str) -> bool:
    said = ast.get_docstring(trees()[module]) or ""
    return re.search(r"\b[Pp]ure\b(?! but)", said) is not None


def imports(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Every import as a module and a name; the name is empty if the whole module is imported."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.module or "", alias.name) for alias in node.names)


def needs_no_look(module: str, name: str) -> bool:
    """Whether a pure module may use that name: of a pure module, a type, a constant, or a function known to be pure."""
    room = module.removeprefix("lcp_engine.").replace(".", "/")
    of_core = room.startswith("core/") or room in {"errors", "clock"} or module in PURE_RULES
    return (
        of_core or (room in trees() and is_called_pure(room)) or not name.islower() or name in PURE_FUNCTIONS
    )


def test_a_module_that_calls_itself_pure_uses_nothing_outside(subtests: pytest.Subtests) -> None:
    for module, tree in trees().items():
        if is_called_pure(module):
            with row(subtests, module):
                _check_pure(tree)


def _check_pure(tree: ast.Module) -> None:
    used = [*imports(tree)]
    assert {name for name, _ in used if name.split(".")[0] in OUTSIDE} == set()
    inner = [(name, what) for name, what in used if name.startswith("lcp_engine")]
    assert [entry for entry in inner if not needs_no_look(*entry)] == []
    calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    assert {ast.unparse(call) for call in calls} & NOT_PURE == set()


# -- SQL


STATEMENT = re.compile(
    r"\s*(SELECT|INSERT INTO|UPDATE|DELETE FROM|PRAGMA|CREATE|DROP|ALTER|BEGIN)\s+[\w*\"(]"
)


def test_all_sql_is_in_the_store() -> None:
    found = [
        (module, node.value)
        for module, tree in trees().items()
        if not re.match(r"store/|features/\w+/store(/|$)", module)
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and STATEMENT.match(node.value)
    ]
    assert found == []


def _names(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


WRITES_STATE = re.compile(r"UPDATE jobs\b.*\bstate\s*=|INSERT INTO jobs\b", re.DOTALL)


def writes_state(tree: ast.AST) -> bool:
    """Whether a statement writes the column `state` of `jobs`, as an expression or as text."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and WRITES_STATE.search(node.value):
            return True
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "values":
            made = node.func.value
            of_jobs = any(
                isinstance(call, ast.Call)
                and isinstance(call.func, ast.Name)
                and call.func.id in {"update", "insert"}
                and "jobs" in _names(call)
                for call in ast.walk(made)
            )
            given = {keyword.arg for keyword in node.keywords}
            stated = {
                key.value
                for value in node.args
                for part in ast.walk(value)
                if isinstance(part, ast.Dict)
                for key in part.keys
                if isinstance(key, ast.Constant)
            }
            if of_jobs and ("state" in given or "state" in stated):
                return True
    return False


def test_only_the_ledger_changes_the_state_of_a_job() -> None:
    assert {module for module, tree in trees().items() if writes_state(tree)} == {"store/ledger_sql"}
    users = {
        module
        for module, tree in trees().items()
        if any(
            name == "lcp_engine.store.ledger_sql" or (name, what) == ("lcp_engine.store", "ledger_sql")
            for name, what in imports(tree)
        )
    }
    assert users == {"store/ledger", "features/replay/store/copy_mission"}


# -- Words for people


INTERNAL = re.compile(r"\bR\d{1,2}\b|\bseeds?/|\bseed \d|\bCONTRACT\.md|\bDESIGN\.md|\bHOUSE\.md")
FOR_PROGRAMMERS = {"rules.md", "architecture.md", "decisions.md"}


def spoken(tree: ast.AST) -> Iterator[str]:
    """Every text of a module that is not a docstring."""
    silent = {
        id(statement.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        for statement in node.body
        if isinstance(statement, ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in silent:
            yield node.value


def helps(command: click.Command, names: Sequence[str] = ("lcp",)) -> Iterator[tuple[str, str]]:
    context = click.Context(command, info_name=" ".join(names))
    yield " ".join(names), command.get_help(context)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from helps(inner, (*names, name))


def test_no_message_cites_what_users_do_not_have() -> None:
    found = {
        (module, text) for module, tree in trees().items() for text in spoken(tree) if INTERNAL.search(text)
    }
    assert found == set()


def test_no_help_cites_what_users_do_not_have() -> None:
    assert {name for name, text in helps(lcp) if INTERNAL.search(text)} == set()


def test_no_schema_cites_what_users_do_not_have() -> None:
    from lcp_engine.features.authoring.schema import _schemas, _strict_schemas

    made = [*_schemas().items(), *_strict_schemas().items()]
    assert {name for name, schema in made if INTERNAL.search(json.dumps(schema()))} == set()


@table(
    "page",
    [
        *(page for page in sorted((PROJECT / "docs").glob("*.md")) if page.name not in FOR_PROGRAMMERS),
        PROJECT / "README.md",
        *sorted((PROJECT / "missions").glob("*")),
        *sorted((SOURCE / "web").rglob("*.html")),
    ],
    ids=lambda page: str(page.name),
)
def test_no_page_cites_what_users_do_not_have(page: Path) -> None:
    assert INTERNAL.findall(page.read_text(encoding="utf-8")) == []
