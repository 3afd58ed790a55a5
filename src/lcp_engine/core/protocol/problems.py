"""Collect what is wrong with a reply, and what of it is ignored, in sentences that help the planner."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import lru_cache
from typing import TypeVar

from pydantic import BaseModel, JsonValue, ValidationError
from pydantic_core import ErrorDetails

from lcp_engine.core.protocol.actions import Problem
from lcp_engine.core.protocol.strict_json import shown

MAX_WARNINGS = 20
MAX_PROBLEMS = 1000

M = TypeVar("M", bound=BaseModel)


@dataclass
class Findings:
    """Problems make a reply malformed; warnings name keys that were ignored."""

    problems: list[Problem] = field(default_factory=list)
    _named: list[str] = field(default_factory=list)
    _unnamed: int = 0

    def refuse(self, path: str, message: str) -> None:
        self.problems.append(Problem(path=path, message=message))

    def add(self, problems: Iterable[Problem], *, whole: bool) -> None:
        """Notes `problems` at places that have none yet; those of the object as a whole only where `whole`."""
        known = {problem.path for problem in self.problems}
        self.problems += (p for p in problems if p.path not in known and (p.path or whole))

    def ignore(self, path: str, reason: str) -> None:
        if len(self._named) < MAX_WARNINGS:
            self._named.append(f"{path}: {reason}")
        else:
            self._unnamed += 1

    def ignore_unknown(self, path: str, keys: Sequence[str], known: Iterable[str]) -> None:
        # There may be millions: those that are not named are only counted.
        named = keys[: MAX_WARNINGS - len(self._named)]
        for key in named:
            self.ignore(join(path, shortened(key)), f"unknown key, ignored{_nearest(key, known)}")
        self._unnamed += len(keys) - len(named)

    @property
    def is_full(self) -> bool:
        return len(self.problems) >= MAX_PROBLEMS

    @property
    def warnings(self) -> tuple[str, ...]:
        more = (f"… and {self._unnamed:,} more",) if self._unnamed else ()
        return (*self._named, *more)

    def validate(self, model: type[M], fields: Mapping[str, JsonValue], path: str, place: str) -> M | None:
        """`fields` as `model`; where they do not fit, None, and every reason is noted beneath `path`.

        `place` says what they belong to: `a job`, `list_files`.
        """
        try:
            return model.model_validate(fields)
        except ValidationError as error:
            known = param_names(model)
            for detail in error.errors(include_url=False):
                where, message = _explain(detail, place, known)
                self.refuse(join(path, where), message)
            return None


def join(path: str, key: str) -> str:
    """`key` beneath `path`: `new_jobs[0]` and `kind` make `new_jobs[0].kind`."""
    return f"{path}.{key}" if path and key and not key.startswith("[") else f"{path}{key}"


def shortened(key: str) -> str:
    """A key of the planner's as part of a path."""
    return key if len(key) <= 60 else f"{key[:60]}…"


def name_unknown(what: str, name: str, known: Iterable[str]) -> str:
    """`unknown param 'pattern'; did you mean 'patterns'?`, or which there are where none is near."""
    known = tuple(known)
    hint = _nearest(name, known) or f"; known are {', '.join(known)}"
    return f"unknown {what} '{shortened(name)}'{hint}"


@lru_cache(maxsize=256)
def param_names(model: type[BaseModel]) -> tuple[str, ...]:
    """The keys that `model` reads: names and aliases of its fields."""
    names: list[str] = []
    for name, info in model.model_fields.items():
        aliases = getattr(info.validation_alias, "choices", [info.validation_alias])
        texts = [alias for alias in aliases if isinstance(alias, str)]
        names += texts if texts and not model.model_config.get("populate_by_name") else [name, *texts]
    return tuple(dict.fromkeys(names))


def _nearest(name: str, known: Iterable[str]) -> str:
    near = get_close_matches(name[:60].lower(), list(known), n=1, cutoff=0.6)
    return f"; did you mean '{near[0]}'?" if near else ""


_EXPECTED = {
    "string_type": "a string",
    "bool_type": "true or false",
    "int_type": "an integer",
    "float_type": "a number",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
}


def _explain(detail: ErrorDetails, place: str, known: tuple[str, ...]) -> tuple[str, str]:
    loc, context, kind = detail["loc"], detail.get("ctx", {}), detail["type"]
    path = ""
    for part in loc:
        path = join(path, f"[{part}]" if isinstance(part, int) else shortened(part))
    name = str(loc[-1]) if loc else place
    if not loc:
        return path, f"{place}: {detail['msg']}"
    found = shown(detail["input"])
    match kind:
        case "missing":
            return path, f"{place} needs {name}; it is missing"
        case "extra_forbidden":
            return path, name_unknown("param", name, known)
        case "literal_error":
            return path, f"{name} is {context['expected']}; found {found}"
        case "string_pattern_mismatch" if name == "kind":
            return path, f"kind is 1 to 64 of the characters A-Z a-z 0-9 _ . -; found {found}"
        case "string_too_long":
            found = f"{len(str(detail['input'])):,}"
            return path, f"{name} has at most {context['max_length']} characters; found {found}"
        case "string_too_short" if not detail["input"]:
            return path, f"{name} is not empty; found {found}"
        case _ if kind in _EXPECTED:
            return path, f"{name} is {_EXPECTED[kind]}; found {found}"
        case _:
            return path, f"{name}: {detail['msg']}; found {found}"
