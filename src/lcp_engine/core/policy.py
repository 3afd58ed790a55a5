"""Decide which jobs may run, wait for a person or are denied (R5). Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from enum import StrEnum
from functools import reduce
from types import MappingProxyType
from typing import Annotated, NamedTuple, Self, TypeAlias, assert_never

from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator

from lcp_engine.core.paths.patterns import RulePatterns, compile_rule, folded, literal
from lcp_engine.core.paths.secret_files import is_engine_file, is_git_file, is_git_secret, is_secret
from lcp_engine.core.reasons import Reason, ReasonCode, because
from lcp_engine.core.safe_text import one_line
from lcp_engine.errors import GENERAL, LcpError


class Verdict(StrEnum):
    """Effect of a rule on a job, from lenient to strict."""

    AUTO = "auto"
    HOLD = "hold"
    DENY = "deny"


MOST_APPROVALS = 20


class Rule(BaseModel):
    """One rule: which jobs it is about, and what it does with them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kinds: tuple[str, ...] = Field(
        default=("*",), description="The kinds of jobs that it is about; `*` stands for all."
    )
    paths: tuple[str, ...] | None = Field(
        default=None,
        description="The paths that it is about, as gitignore-style patterns; without it, all jobs.",
    )
    do: Verdict = Field(description="`auto` runs the job, `hold` holds it for a person, `deny` refuses it.")
    final: bool = Field(
        default=False, description="In the configuration only: the rule comes before those of every mission."
    )
    approvals: Annotated[int, Field(ge=1, le=MOST_APPROVALS)] = Field(
        default=1, description="With `hold`: how many people have to approve the job."
    )
    not_requester: bool = Field(
        default=False, description="With `hold`: who launched the mission may not approve the job."
    )

    @model_validator(mode="after")
    def _holds(self) -> Self:
        if self.do is not Verdict.HOLD and not self.consent.is_usual:
            raise ValueError(f"approvals and not_requester need `do: hold`; this rule says {self.do}")
        return self

    @property
    def consent(self) -> Consent:
        """Whose approvals it asks for."""
        return Consent(self.approvals, self.not_requester)

    def as_json(self) -> dict[str, JsonValue]:
        """The rule as a mission file states it."""
        stated: dict[str, JsonValue] = self.model_dump(mode="json", exclude_defaults=True)
        return stated

    def __str__(self) -> str:
        """Its kinds, then its paths."""
        return " ".join((", ".join(self.kinds), *(self.paths or ())))


@dataclass(frozen=True)
class Consent:
    """Whose approvals let a held job run: so many people's, perhaps not that of who launched the mission."""

    approvals: int = 1
    not_requester: bool = False

    @property
    def is_usual(self) -> bool:
        return self.approvals == 1 and not self.not_requester

    def joined(self, other: Consent) -> Consent:
        """Consent that satisfies both."""
        return Consent(max(self.approvals, other.approvals), self.not_requester or other.not_requester)


USUAL = Consent()
EVERYBODYS = Consent(MOST_APPROVALS, not_requester=True)


@dataclass(frozen=True)
class Approvals:
    """Number of people who have to approve a job, who have, and who may not because they launched its mission."""

    needed: int
    given: tuple[str, ...]
    barred: tuple[str, ...]
    left: tuple[str, ...] | None = None
    """The approvers of the configuration who may still approve it; None where it names none, so that anyone may."""

    def as_json(self) -> dict[str, JsonValue]:
        """As `lcp held --json` prints it."""
        return {"needed": self.needed, "given": [*self.given], "barred": [*self.barred]}

    @property
    def awaited(self) -> str:
        """The approvals that are missing, and of whom: `the approval of anna or ben`."""
        people, missing = self.left or (), self.needed - len(self.given)
        whom = " or ".join(filter(None, (", ".join(people[:-1]), *people[-1:])))
        few = ", and the configuration has too few approvers"
        end = few if self.left is not None and len(people) < missing else ""
        if missing < 2:
            return one_line(f"the approval of {whom or 'another person'}{end}")
        return one_line(f"{missing} more approvals of {whom or 'other people'}{end}")

    def __str__(self) -> str:
        """In words, on one line."""
        counted = f"{len(self.given)} of {self.needed} approvals" if self.needed > 1 else "no approval yet"
        given = f", by {', '.join(self.given)}" if self.given else ""
        barred = (
            f"; {', '.join(self.barred)}, who launched the mission, may not approve" if self.barred else ""
        )
        return one_line(f"{counted}{given}{barred}")


@dataclass(frozen=True)
class Ruling:
    """A verdict and its reason, which names the rule that decided."""

    verdict: Verdict
    reason: Reason
    consent: Consent = USUAL


@dataclass(frozen=True)
class Looked:
    """A rule that was considered. `matches_path` is None if its kinds do not match, so that paths do not matter."""

    origin: str
    rule: str
    does: Verdict
    matches_kind: bool
    matches_path: bool | None
    decided: bool = False


@dataclass(frozen=True)
class Explained:
    """Explanation of the ruling on one path (relative to the root, "" for none), rule by rule."""

    path: str
    ruling: Ruling
    looked: tuple[Looked, ...]


@dataclass(frozen=True, slots=True)
class KindNames:
    """A kind and others whose rules are about it, too: all rules for `names`, those for `restricted_as` that hold or
    deny, and those for `denied_as` that deny. No rule for another kind lets it run unless that is one of its `names`.
    Where a rule that names a kind of `denied_with`, or the default, denies its jobs, this kind's are denied, too.
    """

    names: tuple[str, ...]
    denied_as: tuple[str, ...] = ()
    restricted_as: tuple[str, ...] = ()
    denied_with: tuple[str, ...] = ()

    def for_rules(self, verdict: Verdict) -> tuple[str, ...]:
        """The kinds whose rules with this verdict are about it."""
        match verdict:
            case Verdict.AUTO:
                return self.names
            case Verdict.HOLD:
                return (*self.names, *self.restricted_as)
            case Verdict.DENY:
                return (*self.names, *self.restricted_as, *self.denied_as)
            case _:
                assert_never(verdict)


Named: TypeAlias = str | KindNames


def as_named(paths: Iterable[str], *, writes: bool) -> list[str]:
    """The paths whose rules say who has to approve a job that names these; of one that names none, the root.

    What is read may be a directory: rules about it count, too.
    """
    named = list(paths)
    return [*named, *(f"{path}/" for path in named if path and not writes)] or [""]


def _without_holds(kind: Named) -> Named:
    """The names of a kind without those whose holds are about it: these never stand in for a denial after them."""
    if isinstance(kind, str):
        return kind
    return KindNames(kind.names, (*kind.restricted_as, *kind.denied_as))


def _denied_with(kind: Named) -> tuple[str, ...]:
    return () if isinstance(kind, str) else kind.denied_with


PathPolicy: TypeAlias = Callable[[str], Ruling]
Move: TypeAlias = tuple[str, str]
"""Where the content of a file was, and where a job of the mission brought it."""
Origins: TypeAlias = Mapping[str, tuple[str, ...]]
"""By path, `folded`: where the content of that file was before."""


@dataclass(frozen=True)
class Judge:
    """The `PathPolicy` of one kind. Without denying rules only the default denies."""

    ruling: PathPolicy
    has_denying_rules: bool

    def __call__(self, path: str) -> Ruling:
        return self.ruling(path)


class Policy:
    """The rules of a mission and of its user above the default policy.

    For one path the first rule that matches decides: the user's final rules, the mission's, the user's others, the
    default. A denial of the default is lifted only by a user's rule that names the path as it is spelled. `relative`
    turns a path as a planner spells it into one relative to the root (`Names.relative`); `engine_paths` are the
    engine's files and directories in the root, such as its database ("" is the root itself). In a `stage` what would be
    held for writing files runs: a person approves the merge. A file with `origins` is used under the rules for these,
    too, unless it is written and the job tells nothing of it: the strictest counts.
    Raises `LcpError` INVALID_PATTERN for a rule with an invalid pattern.
    """

    def __init__(
        self,
        mission_rules: Sequence[Rule] = (),
        user_rules: Sequence[Rule] = (),
        *,
        relative: Callable[[str], str] = lambda path: path,
        engine_paths: Iterable[str] = (),
        stage: bool = False,
        origins: Origins = MappingProxyType({}),
    ) -> None:
        mission = [_named(_MISSION, number, rule) for number, rule in enumerate(mission_rules, 1)]
        users = [_named(_USER, number, rule) for number, rule in enumerate(user_rules, 1)]
        self._rules = _Rules(
            [rule for rule in users if rule.origin == _FINAL],
            mission,
            [rule for rule in users if rule.origin == _USER],
        )
        self.relative = relative
        self._is_private = stage
        self.origins = origins
        self._engine_paths = frozenset(map(folded, engine_paths))
        self._in_engine_paths = tuple(f"{path}/" for path in self._engine_paths if path)

    @property
    def follows_moves(self) -> bool:
        """True if it matters where the content of a file was before: not if nothing is held or denied."""
        final, mission, user = self._rules
        return any(rule.ruling.verdict is not Verdict.AUTO for rule in mission) or bool(final or user)

    def following(self, moves: Iterable[Move]) -> Policy:
        """The same policy after these moves, the oldest first: what is held or denied stays so where it is now."""
        origins = dict(self.origins)
        for before, after in moves:
            old, new = self.relative(before), self.relative(after)
            come = (*((old,) if self._restricts(old) else ()), *origins.get(folded(old), ()))
            if come and old != new:
                key = folded(new)
                origins[key] = tuple(dict.fromkeys((*origins.get(key, ()), *come)))
        followed = copy(self)
        followed.origins = origins
        return followed

    def kept_by_rules(self) -> tuple[Rule, ...]:
        """Rules that keep held and denied what was moved, for a mission that goes on in the same root."""
        rules = [rule for group in self._rules for rule in group if rule.ruling.verdict is not Verdict.AUTO]
        kept: dict[Rule, None] = {}
        for path, origins in self.origins.items():
            for rule in (one for one in rules if any(map(one.matches, origins))):
                kept[rule.at(path)] = None
        return tuple(kept)

    def _restricts(self, path: str) -> bool:
        """True if a rule that holds or denies jobs of some kind, or a denial of the default, is about the path."""
        rules = (rule for group in self._rules for rule in group)
        return self._denial(path, writes=False) is not None or any(
            rule.ruling.verdict is not Verdict.AUTO and rule.matches(path) for rule in rules
        )

    def _with_origins(self, path: str, *, writes: bool = False) -> tuple[str, ...]:
        """The paths whose rules count for a file, by default for what is in it."""
        return (path,) if writes or not self.origins else (path, *self.origins.get(folded(path), ()))

    def judge(self, kind: Named, *, has_effects: bool, writes: bool, paths: Sequence[str] = ()) -> Ruling:
        """The ruling on a job when it is requested; of several paths the strictest counts."""
        policy = self.for_kind(kind, has_effects=has_effects, writes=writes)
        return strictest([policy(self.relative(path)) for path in paths] or [policy("")])

    def mildest(self, kind: Named, *, has_effects: bool) -> Ruling:
        """The mildest ruling that a job has on any path, denials of the default aside."""
        found: list[Ruling] = []
        own = _without_holds(kind)
        for rule in (rule for group in self._rules for rule in group if rule.has_kind(own)):
            found.append(rule.ruling)
            if rule.matches_everything:
                break
        else:
            found.append(_DEFAULT_HOLD if has_effects else _DEFAULT_AUTO)
        return min(found, key=lambda ruling: _STRICTNESS[ruling.verdict])

    def consent(self, kind: Named, *, has_effects: bool, writes: bool, paths: Sequence[str] = ()) -> Consent:
        """Whose approvals a job needs; of several paths each rule has to be satisfied.

        A job that changes files and names none, such as a merge, satisfies every rule about what it does.
        """
        policy = self.for_kind(kind, has_effects=has_effects, writes=writes)
        named = as_named(map(self.relative, paths), writes=writes)
        rulings = [policy(one) for path in named for one in self._with_origins(path, writes=writes)]
        if writes and not paths:
            rulings += [rule.ruling for group in self._rules for rule in group if rule.has_kind(kind)]
        return reduce(Consent.joined, (ruling.consent for ruling in rulings))

    def elsewhere(self, kind: Named, *, has_effects: bool) -> Ruling:
        """The ruling on a path that no rule about certain paths, and no denial of the default, is about."""
        default = _DEFAULT_HOLD if has_effects else _DEFAULT_AUTO
        found: list[Ruling] = []
        for names in (kind, _without_holds(kind)):
            rules = (rule for group in self._rules for rule in group if rule.has_kind(names))
            found.append(next((rule.ruling for rule in rules if rule.covers_most), default))
        return strictest(found)

    def for_kind(self, kind: Named, *, has_effects: bool, writes: bool) -> PathPolicy:
        """The function that rules on one resolved path (relative to the root) while a job of that kind executes."""
        rules, own = (
            _Rules(*([rule for rule in group if rule.has_kind(names)] for group in self._rules))
            for names in (kind, _without_holds(kind))
        )
        others = [self._naming(name) for name in _denied_with(kind)]
        default = _DEFAULT_HOLD if has_effects else _DEFAULT_AUTO

        def judge(path: str) -> Ruling:
            denial = self._denial(path, writes=writes)
            found = _walk(rules, path, default, denial, _first) if has_rules else denial or default
            if has_others:
                found = strictest([found, _walk(own, path, default, denial, _first)])
            for other, told in ((other, told) for other in others for told in self._with_origins(path)):
                ruling = _walk(other, told, _DEFAULT_AUTO, self._denial(told, writes=False), _first)
                found = strictest([found, ruling]) if ruling.verdict is Verdict.DENY else found
            return STAGED if in_stage and found.verdict is Verdict.HOLD else found

        def judge_with_origins(path: str) -> Ruling:
            return strictest([judge(one) for one in self._with_origins(path)])

        has_rules, in_stage, has_others = any(rules), self._is_private and writes, rules != own
        denies = any(
            rule.ruling.verdict is Verdict.DENY
            for some in (rules, *others)
            for group in some
            for rule in group
        )
        follows = self.origins and not writes
        return Judge(judge_with_origins if follows else judge, has_denying_rules=denies)

    def apart_from_secrets(self, kind: Named) -> Callable[[str], bool]:
        """Returns whether a job that reads could read a path without a person if its name were not one of secrets."""
        rules = _Rules(*([rule for rule in group if rule.has_kind(kind)] for group in self._rules))

        def may_read(path: str) -> bool:
            denial = self._denial(path, writes=False)
            found = _walk(rules, path, _DEFAULT_AUTO, None if denial is _SECRETS else denial, _first)
            return found.verdict is Verdict.AUTO

        return lambda path: all(may_read(one) for one in self._with_origins(path))

    def _naming(self, kind: str) -> _Rules:
        """Rules for a kind without denials of every kind: past these, a rule of its own lets another kind run."""
        return _Rules(
            *(
                [
                    rule
                    for rule in group
                    if rule.has_kind(kind) and (kind in rule.kinds or rule.ruling.verdict is not Verdict.DENY)
                ]
                for group in self._rules
            )
        )

    def only_files(self, kind: Named, *, has_effects: bool, writes: bool) -> tuple[str, ...] | None:
        """The files that jobs of that kind may use, if rules list them one by one and deny all others.

        None if any file may be used. A name without a suffix may be a directory, and then covers all beneath it.
        """
        judge = self.for_kind(kind, has_effects=has_effects, writes=writes)
        named: dict[str, None] = {}
        own = _without_holds(kind)
        for rule in (rule for group in self._rules for rule in group if rule.has_kind(own)):
            if rule.ruling.verdict is Verdict.DENY and rule.matches_everything:
                return tuple(path for path in named if judge(path).verdict is not Verdict.DENY)
            if rule.ruling.verdict is not Verdict.DENY:
                if any(_FILE.fullmatch(path) is None for path in rule.paths or ("*",)):
                    return None
                named |= dict.fromkeys(path.removeprefix("/") for path in rule.paths or ())
        return None

    def explain(
        self, kind: Named, *, has_effects: bool, writes: bool, paths: Sequence[str] = ()
    ) -> list[Explained]:
        """Like `judge`, with every rule that was considered: one entry for each path, or one if there is no path."""
        default = _DEFAULT_HOLD if has_effects else _DEFAULT_AUTO
        explained: list[Explained] = []
        relative = map(self.relative, paths or ("",))
        for path in (one for stated in relative for one in self._with_origins(stated, writes=writes)):
            denial = self._denial(path, writes=writes)
            notes, own = _Notes(kind), _Notes(_without_holds(kind))
            found = _walk(self._rules, path, default, denial, notes.first)
            alone = _walk(self._rules, path, default, denial, own.first)
            if strictest([found, alone]) is not found:
                notes, found = own, alone
            named = [(other, one) for other in _denied_with(kind) for one in self._with_origins(path)]
            for other, one in named:
                told = _Notes(other)
                barred = self._denial(one, writes=False)
                ruling = _walk(self._naming(other), one, _DEFAULT_AUTO, barred, told.first)
                if ruling.verdict is Verdict.DENY and found.verdict is not Verdict.DENY:
                    notes, found, denial = told, ruling, barred
            looked = notes.whole(denial, default, found)
            ruling = STAGED if self._is_private and writes and found.verdict is Verdict.HOLD else found
            explained.append(Explained(path, ruling, looked))
        return explained

    def _denial(self, path: str, *, writes: bool) -> Ruling | None:
        """The denial of the default policy, if any, whatever the case of the path."""
        alike = folded(path).replace("\\", "/")
        if is_secret(alike):
            return _SECRETS
        if is_engine_file(alike) or self._is_engine_path(alike):
            return _ENGINE_FILES
        if writes and is_git_file(alike):
            return _GIT_FILES
        if not writes and is_git_secret(alike):
            return _GIT_SECRETS
        return None

    def _is_engine_path(self, alike: str) -> bool:
        own = self._engine_paths
        return bool(own) and (alike in own or "" in own or alike.startswith(self._in_engine_paths))


_STRICTNESS = {Verdict.AUTO: 0, Verdict.HOLD: 1, Verdict.DENY: 2}
_DEFAULT_AUTO = Ruling(Verdict.AUTO, because(ReasonCode.DEFAULT_AUTO))
_DEFAULT_HOLD = Ruling(Verdict.HOLD, because(ReasonCode.DEFAULT_HOLD))
STAGED = Ruling(Verdict.AUTO, because(ReasonCode.STAGED))
"""In place of a hold, for what changes nothing outside of a stage."""
_SECRETS = Ruling(Verdict.DENY, because(ReasonCode.SECRETS))
_ENGINE_FILES = Ruling(Verdict.DENY, because(ReasonCode.ENGINE_FILES))
_GIT_FILES = Ruling(Verdict.DENY, because(ReasonCode.GIT_FILES))
_GIT_SECRETS = Ruling(Verdict.DENY, because(ReasonCode.GIT_CONFIG))

_EVERYTHING = frozenset({"*", "**"})
# Anchored to the root, without anything that a pattern knows.
_FILE = re.compile(r"/(?:[\w.@+-][\w .@+-]*/)*[\w@+.-][\w @+-]*(?:\.[\w@+-]+)+")


def _excludes(paths: Sequence[str]) -> bool:
    return any(path.startswith("!") for path in paths)


@dataclass(frozen=True)
class _NamedRule:
    origin: str
    kinds: frozenset[str]
    paths: tuple[str, ...] | None
    patterns: RulePatterns | None
    exact: RulePatterns | None
    ruling: Ruling

    def has_kind(self, kind: Named) -> bool:
        if "*" in self.kinds or isinstance(kind, str):
            return "*" in self.kinds or kind in self.kinds
        return not self.kinds.isdisjoint(kind.for_rules(self.ruling.verdict))

    @property
    def covers_most(self) -> bool:
        """True if it matches every path, but perhaps those that it excludes."""
        return self.paths is None or not _EVERYTHING.isdisjoint(self.paths)

    @property
    def matches_everything(self) -> bool:
        return self.covers_most and not _excludes(self.paths or ())

    def matches(self, path: str) -> bool:
        return self.patterns is None or (bool(path) and self.patterns.matches(path))

    def at(self, path: str) -> Rule:
        """The rule, about this one path."""
        ruling, kinds = self.ruling, tuple(sorted(self.kinds))
        consent = ruling.consent
        return Rule(
            kinds=kinds, paths=(literal(f"/{path}"),), do=ruling.verdict, approvals=consent.approvals,
            not_requester=consent.not_requester,
        )  # fmt: skip

    def may_lift(self, path: str) -> bool:
        """True if it may replace a denial: it denies, too, or names this path as it is spelled."""
        if self.ruling.verdict is Verdict.DENY:
            return True
        return self.exact is not None and bool(path) and self.exact.matches(path)


class _Rules(NamedTuple):
    """Rules in the order of precedence; the default's denials come after the final ones."""

    final: Sequence[_NamedRule]
    mission: Sequence[_NamedRule]
    user: Sequence[_NamedRule]


_Find: TypeAlias = Callable[[Iterable[_NamedRule], str], _NamedRule | None]


def _walk(rules: _Rules, path: str, default: Ruling, denial: Ruling | None, first: _Find) -> Ruling:
    """Apply the rules in their order. `first` finds the first match, and may record what it considers."""
    final = first(rules.final, path)
    if denial is None:
        decided = final or first(rules.mission, path) or first(rules.user, path)
        return default if decided is None else decided.ruling
    if final is not None and final.may_lift(path):
        return final.ruling
    # The default's denial, or the user's rule that lifts it; a mission's rule may only be stricter than that.
    lifting = first((rule for rule in rules.user if rule.patterns is not None), path)
    if lifting is None or not lifting.may_lift(path):
        return denial
    own = first(rules.mission, path)
    return strictest([lifting.ruling, *([] if own is None else [own.ruling])])


def _first(rules: Iterable[_NamedRule], path: str) -> _NamedRule | None:
    return next((rule for rule in rules if rule.matches(path)), None)


def strictest(rulings: Sequence[Ruling]) -> Ruling:
    """The ruling that refuses most."""
    return max(rulings, key=lambda ruling: _STRICTNESS[ruling.verdict])


class _Notes:
    """Records which rules are considered for jobs of one kind."""

    def __init__(self, kind: Named) -> None:
        self._kind = kind
        self._groups: dict[str, list[tuple[_NamedRule, bool, bool | None]]] = {}

    def first(self, rules: Iterable[_NamedRule], path: str) -> _NamedRule | None:
        """Like `_first`, for rules that may be for other kinds."""
        for rule in rules:
            has_kind = rule.has_kind(self._kind)
            matches = rule.matches(path) if has_kind else None
            self._groups.setdefault(rule.origin, []).append((rule, has_kind, matches))
            if matches:
                return rule
        return None

    def whole(self, denial: Ruling | None, default: Ruling, ruling: Ruling) -> tuple[Looked, ...]:
        """Everything that was considered, in the order of precedence."""
        denied = denial or Ruling(Verdict.DENY, because(ReasonCode.DEFAULT_DENIALS))
        looked = self._of(_FINAL, ruling)
        looked.append(
            Looked(
                _DENIALS, denied.reason.text, Verdict.DENY, True, denial is not None, decided=ruling is denial
            )
        )
        looked += [*self._of(_MISSION, ruling), *self._of(_USER, ruling)]
        if ruling is default:
            looked.append(Looked(_DEFAULT, default.reason.text, default.verdict, True, True, decided=True))
        return tuple(looked)

    def _of(self, origin: str, ruling: Ruling) -> list[Looked]:
        return [
            Looked(
                origin, rule.ruling.reason.text, rule.ruling.verdict, has_kind, matches, rule.ruling is ruling
            )
            for rule, has_kind, matches in self._groups.get(origin, [])
        ]


_FINAL, _DENIALS, _MISSION, _USER, _DEFAULT = "user, final", "default denials", "mission", "user", "default"


def _named(origin: str, number: int, rule: Rule) -> _NamedRule:
    is_final = rule.final and origin == _USER
    named = f"final {origin}" if is_final else origin
    reason = because(ReasonCode.RULE, origin=named, number=number, what=str(rule), verdict=rule.do.value)
    # A file system may be case-sensitive or not: in doubt a rule grants less and refuses more.
    grants = rule.do is Verdict.AUTO
    patterns = exact = None
    if rule.paths is not None:
        try:
            patterns = compile_rule(rule.paths, grants=grants)
            # A hold refuses if it stands alone, and grants if it replaces a denial.
            exact = compile_rule(rule.paths, grants=True)
        except LcpError as refused:
            raise LcpError(refused.code, f"{named} rule {number}: {refused}", advice=GENERAL) from refused
    return _NamedRule(
        _FINAL if is_final else origin,
        frozenset(rule.kinds),
        rule.paths,
        patterns,
        exact,
        Ruling(rule.do, reason, rule.consent),
    )
