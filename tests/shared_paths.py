"""Load the shared path cases and the code that checks their outcomes, if they are beside this repository."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import TypeAlias

from pydantic import JsonValue

SHARED = Path(__file__).parents[2] / "shared"
CASES = SHARED / "cases" / "paths.jsonl"
ABSENT = "the shared cases are not beside this repository"
Load: TypeAlias = Callable[[], list[dict[str, JsonValue]]]


def load_cases() -> list[dict[str, JsonValue]]:
    if not CASES.exists():
        return []
    user = "root" if os.getuid() == 0 else "nonroot"
    with CASES.open(encoding="utf-8") as lines:
        cases = [json.loads(line) for line in lines]
    return [case for case in cases if not case.get("race") and case.get("requires", user) == user]


def load_cases_of_the_mechanism() -> list[dict[str, JsonValue]]:
    """Those whose outcome depends on how a path is followed: through links, up, or to what is no file.

    In the others only the text of the path counts, or what is done with a plain file.
    """
    return [case for case in load_cases() if ".." in json.dumps(case["params"]) or not _is_plain(case)]


def _is_plain(case: Mapping[str, JsonValue]) -> bool:
    setup = case["setup"]
    assert isinstance(setup, list)
    return {step["op"] for step in setup if isinstance(step, dict)} <= {"file", "mkdir"}


def load_judge() -> ModuleType:
    spec = importlib.util.spec_from_file_location("path_cases", SHARED / "tools" / "path_cases.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
