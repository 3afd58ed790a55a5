"""Decide which jobs may run, wait for a person or are denied (R5). Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from pydantic import BaseModel, ConfigDict

from lcp_engine.patterns import Patterns, compile_patterns


class Verdict(StrEnum):
    """What a rule does with a job, from free to strict."""

    AUTO = "auto"
    HOLD = "hold"
    DENY = "deny"


class Rule(BaseModel):
    """One line of a policy: kinds (`*` is all), gitignore-style paths, what to do; `final` counts in a user's rules."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kinds: tuple[str, ...] = ("*",)
    paths: tuple[str, ...] | None = None
    do: Verdict
    final: bool = False


@dataclass(frozen=True)
class Ruling:
    """A verdict and the sentence that explains it, naming the rule that decided."""

    verdict: Verdict
    reason: str


PathPolicy: TypeAlias = Callable[[str], Ruling]


class Policy:
    """The rules of a mission and of its user above the default policy.

    For one path the first rule that matches decides: the user's final rules, the mission's, the user's others, the
    default. What the default denies, only a user's rule that names paths lifts. `relative` turns a path as a planner
    spells it into one relative to the root (`Names.relative`); `engine_paths` are files of the engine in the root,
    its database for one. Raises `LcpError` INVALID_PATTERN for a rule whose paths are no patterns.
    """

    def __init__(
        self,
        mission_rules: Sequence[Rule] = (),
        user_rules: Sequence[Rule] = (),
        *,
        relative: Callable[[str], str] = lambda path: path,
        engine_paths: Iterable[str] = (),
    ) -> None:
        mission = [_named("mission rule", number, rule) for number, rule in enumerate(mission_rules, 1)]
        users = [_named("user rule", number, rule) for number, rule in enumerate(user_rules, 1)]
        self._final = [rule for rule in users if rule.final]
        self._mission = mission
        self._user = [rule for rule in users if not rule.final]
        self._relative = relative
        self._engine_paths = frozenset(path.casefold() for path in engine_paths)

    def judge(self, kind: str, *, has_effects: bool, writes: bool, paths: Sequence[str] = ()) -> Ruling:
        """The state that policy gives a job when it is requested; of several paths the strictest counts."""
        policy = self.for_kind(kind, has_effects=has_effects, writes=writes)
        rulings = [policy(self._relative(path)) for path in paths] or [policy("")]
        return max(rulings, key=lambda ruling: _STRICTNESS[ruling.verdict])

    def for_kind(self, kind: str, *, has_effects: bool, writes: bool) -> PathPolicy:
        """What judges one resolved path (relative to the root, "/") when a job of that kind is executed."""
        final, mission, user = (
            [rule for rule in rules if rule.has_kind(kind)]
            for rules in (self._final, self._mission, self._user)
        )
        default = _DEFAULT_HOLD if has_effects else _DEFAULT_AUTO

        def judge(path: str) -> Ruling:
            if (decided := _first(final, path)) is not None:
                return decided
            denial = self._denial(path, writes=writes)
            if denial is not None:
                return _lifted(denial, mission, user, path)
            return _first(mission, path) or _first(user, path) or default

        return judge

    def _denial(self, path: str, *, writes: bool) -> Ruling | None:
        """What the default policy denies, whatever case it is written in."""
        folded = path.casefold().replace("\\", "/")
        if _SECRET.search(folded):
            return _SECRETS
        if folded in self._engine_paths or _ENGINE.search(folded):
            return _ENGINE_FILES
        if (
            writes
            and ("git" in folded or "gi7eba" in folded or not folded.isascii())
            and _is_git_file(folded)
        ):
            return _GIT_FILES
        if not writes and _GIT_CONFIG.search(folded):
            return _GIT_SECRETS
        return None


_STRICTNESS = {Verdict.AUTO: 0, Verdict.HOLD: 1, Verdict.DENY: 2}
_DEFAULT_AUTO = Ruling(Verdict.AUTO, "default policy: kinds without effects run")
_DEFAULT_HOLD = Ruling(Verdict.HOLD, "default policy: kinds with effects wait for a person")
_SECRETS = Ruling(Verdict.DENY, "default policy: secrets are denied")
_ENGINE_FILES = Ruling(Verdict.DENY, "default policy: the engine's own files are denied")
_GIT_FILES = Ruling(Verdict.DENY, "default policy: writing .git and .gitmodules is denied")
_GIT_SECRETS = Ruling(Verdict.DENY, "default policy: reading .git/config is denied")

_SECRET = re.compile(
    r"""(?:^|/)(?:
        (?:\.ssh|\.aws|\.gnupg)(?:/|$)
      | \.docker/config\.json$
      | \.env(?:rc)?$ | \.env\.(?!(?:example|sample)$)[^/]*$
      | [^/]*\.(?:pem|key|p12)$
      | id_[^/.]+$ | id_(?:rsa|dsa|ecdsa|ed25519)(?:_sk)?\.(?!pub$)[^/]*$
      | [._]netrc$ | \.npmrc$ | \.pypirc$ | \.git-credentials$
    )""",
    re.VERBOSE | re.DOTALL,
)
_ENGINE = re.compile(r"(?:^|/)\.lcp(?:/|$|-[^/]*\.tmp$)")
# Submodules and linked worktrees have a config of their own.
_GIT_CONFIG = re.compile(r"(?:^|/)\.git/(?:.*/)?config(?:\.worktree)?$", re.DOTALL)
# NTFS: short names, streams after ":", dots and spaces at the end. HFS+: characters that it does not see. From git's
# verify_path: a checkout of what was written here must not become a repository elsewhere.
_GIT_NAME = re.compile(
    r"(?:\.git|git~[0-9]+|\.gitmodules|gitmod~[0-9]+|gi7eba~[0-9]+)[ .]*(?::.*)?", re.DOTALL
)
_UNSEEN = re.compile("[\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]")


def _is_git_file(folded: str) -> bool:
    return any(_GIT_NAME.fullmatch(part) for part in _UNSEEN.sub("", folded).split("/"))


@dataclass(frozen=True)
class _NamedRule:
    kinds: frozenset[str]
    patterns: Patterns | None
    final: bool
    ruling: Ruling

    def has_kind(self, kind: str) -> bool:
        return "*" in self.kinds or kind in self.kinds

    def matches(self, path: str) -> bool:
        return self.patterns is None or (bool(path) and self.patterns.matches(path))


def _named(origin: str, number: int, rule: Rule) -> _NamedRule:
    what = " ".join((", ".join(rule.kinds), *(rule.paths or ())))
    final = "final " if rule.final and origin == "user rule" else ""
    reason = f"{final}{origin} {number} ({what}) says {rule.do}"
    # A file system may take A for a or tell them apart: in doubt a rule grants less and refuses more.
    grants = rule.do is Verdict.AUTO
    patterns = (
        None
        if rule.paths is None
        else compile_patterns(rule.paths, fold_include=not grants, fold_exclude=grants)
    )
    return _NamedRule(frozenset(rule.kinds), patterns, rule.final, Ruling(rule.do, reason))


def _first(rules: Iterable[_NamedRule], path: str) -> Ruling | None:
    return next((rule.ruling for rule in rules if rule.matches(path)), None)


def _lifted(denial: Ruling, mission: Iterable[_NamedRule], user: Iterable[_NamedRule], path: str) -> Ruling:
    """A denial of the default, or what a user's rule makes of it; a mission's rule may only be stricter than that."""
    lifting = _first((rule for rule in user if rule.patterns is not None), path)
    if lifting is None:
        return denial
    own = _first(mission, path)
    return max((lifting, own or lifting), key=lambda ruling: _STRICTNESS[ruling.verdict])
