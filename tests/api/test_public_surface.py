"""Whatever a signature of the public surface mentions is public, and importing the package loads none of it."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import get_args, get_origin, get_type_hints

import pytest
from tests.tables import table

import lcp_engine
from lcp_engine.api.history import History

PARTS = {part: import_module(f"lcp_engine.{part}") for part in lcp_engine._MOVED}
FURTHER = {name: getattr(PARTS[part], name) for part, names in lcp_engine._MOVED.items() for name in names}
PUBLIC = {name: getattr(lcp_engine, name) for name in lcp_engine.__all__} | FURTHER
# Programs run and stop a runner; its other methods serve the threads that it starts.
METHODS: dict[type, set[str]] = {lcp_engine.Runner: {"run", "stop", "left_to_others"}}
INHERITED: dict[type, Mapping[str, object]] = {lcp_engine.Engine: vars(History)}


def functions_of(cls: type) -> Iterator[FunctionType]:
    for name, member in {**INHERITED.get(cls, {}), **vars(cls)}.items():
        if name not in METHODS.get(cls, {name}) or (name.startswith("_") and name != "__init__"):
            continue
        inner = getattr(member, "__func__", None) or getattr(member, "fget", None) or member
        if isinstance(inner, FunctionType) and inner.__module__.startswith("lcp_engine"):
            yield inner


def types_in(hint: object) -> Iterator[type]:
    origin = get_origin(hint)
    if origin is not None:
        yield from types_in(origin)
        for argument in get_args(hint):
            yield from types_in(argument)
    elif isinstance(hint, list):
        for item in hint:
            yield from types_in(item)
    elif isinstance(hint, type) and hint.__module__.startswith("lcp_engine"):
        yield hint


def mentioned_by(public: object) -> Iterator[type]:
    owners: list[object] = [public]
    if isinstance(public, type):
        owners = [*functions_of(public), *([] if issubclass(public, Exception) else [public])]
    elif not inspect.isfunction(public):
        yield from types_in(public)
        return
    for owner in owners:
        for name, hint in get_type_hints(owner, localns=PUBLIC).items():
            if not name.startswith("_"):
                yield from types_in(hint)


@table("name", PUBLIC)
def test_a_public_signature_mentions_public_types_alone(name: str) -> None:
    mentioned = {found.__name__ for found in mentioned_by(PUBLIC[name]) if found not in PUBLIC.values()}
    assert mentioned == set()


def test_type_checkers_see_every_public_name() -> None:
    tree = ast.parse(Path(str(lcp_engine.__file__)).read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    imported = {alias.name for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert imported == set(lcp_engine.__all__)


NEW = {"find_workers"}
"""Names that never were in the package itself."""


@table("part", PARTS)
def test_a_part_of_the_surface_has_the_names_that_moved_to_it(part: str) -> None:
    own = {"errors": {"Code", "ErrorType", "Meaning"}}.get(part) or set(PARTS[part].__all__)
    assert own - NEW == set(lcp_engine._MOVED[part])


@table("name", FURTHER)
def test_a_name_at_its_old_place_is_the_same_and_warns_of_the_new_one(name: str) -> None:
    with pytest.warns(DeprecationWarning, match=rf"lcp_engine\.{name} is lcp_engine\.\w+\.{name} now"):
        assert getattr(lcp_engine, name) is FURTHER[name]


@table("name", PUBLIC)
def test_what_is_public_is_documented(name: str) -> None:
    public = PUBLIC[name]
    if isinstance(public, type) or inspect.isfunction(public):
        assert public.__doc__, name


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'lcp_engine' has no attribute 'Motor'"):
        lcp_engine.Motor  # noqa: B018


def test_importing_the_package_imports_none_of_its_modules() -> None:
    code = "import sys, lcp_engine; print([name for name in sys.modules if name.startswith('lcp_engine.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
