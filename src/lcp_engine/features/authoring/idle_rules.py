"""Find rules of a mission's policy that can never decide about a job. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lcp_engine.core.policy import KindNames, Rule, Verdict
from lcp_engine.core.summaries import nearest

_EVERYTHING = frozenset({"*", "**"})


def idle_rules(rules: Sequence[Rule], user_rules: Sequence[Rule], has_paths: Mapping[str, bool]) -> list[str]:
    """A sentence for each thing about the mission's `rules` that has no effect.

    `has_paths` has every known kind, and whether its jobs have paths. The user's final rules come before the mission's.
    """
    before = [(name, rule) for name, rule in _in_order((), user_rules) if rule.final]
    found: list[str] = []
    for where, rule in _in_order(rules, ()):
        found += [f"{where}: {fact}" for fact in _facts(rule, before, has_paths)]
        before.append((where, rule))
    return found


def rules_by_path(
    rules: Sequence[Rule], user_rules: Sequence[Rule], named: KindNames
) -> list[tuple[str, Rule]]:
    """The rules about certain paths that may decide about jobs of a kind of these names, each with its name."""
    ordered = _in_order(rules, user_rules)
    others = [_by_path(ordered, KindNames((other,))) for other in named.denied_with]
    denials = [name for found in others for name, rule in found.items() if rule.do is Verdict.DENY]
    found = {*_by_path(ordered, named), *denials}
    return [(name, rule) for name, rule in ordered if name in found]


def _by_path(ordered: Sequence[tuple[str, Rule]], named: KindNames) -> dict[str, Rule]:
    own = [
        (name, rule) for name, rule in ordered if any(_has(rule, kind) for kind in named.for_rules(rule.do))
    ]
    return {
        name: rule
        for at, (name, rule) in enumerate(own)
        if rule.paths and (_EVERYTHING.isdisjoint(rule.paths) or _excludes(rule.paths))
        if not any(_covers(other, rule) for _, other in own[:at] if _decides(other, named))
    }


def _decides(rule: Rule, named: KindNames) -> bool:
    """True if no rule after it decides; a hold for another kind leaves a denial after it its effect."""
    return rule.do is not Verdict.HOLD or any(_has(rule, kind) for kind in named.names)


def _in_order(rules: Sequence[Rule], user_rules: Sequence[Rule]) -> list[tuple[str, Rule]]:
    """The rules in the order in which they are considered, with the names that the reasons of jobs have."""
    users = list(enumerate(user_rules, 1))
    return [
        *((f"final user rule {number}", rule) for number, rule in users if rule.final),
        *((f"mission rule {number}", rule) for number, rule in enumerate(rules, 1)),
        *((f"user rule {number}", rule) for number, rule in users if not rule.final),
    ]


def _facts(rule: Rule, before: Sequence[tuple[str, Rule]], has_paths: Mapping[str, bool]) -> list[str]:
    unknown = [kind for kind in rule.kinds if kind != "*" and kind not in has_paths]
    facts = [f"no worker executes kind {kind!r}; {nearest(kind, ['*', *has_paths])}" for kind in unknown]
    if rule.final:
        facts.append("`final` counts in a user's rules only")
    kinds = [kind for kind in has_paths if _has(rule, kind)]
    if unknown and not kinds:
        return facts
    fact = _why_never(rule, kinds, has_paths) or _decided_before(rule, kinds, before)
    return facts if fact is None else [*facts, f"it can never match: {fact}"]


def _why_never(rule: Rule, kinds: Sequence[str], has_paths: Mapping[str, bool]) -> str | None:
    if not kinds:
        return "it names no kind"
    if rule.paths == ():
        return "its list of paths is empty"
    if rule.paths is not None and not any(has_paths[kind] for kind in kinds):
        return f"jobs of kind {', '.join(kinds)} have no path"
    return None


def _decided_before(rule: Rule, kinds: Sequence[str], before: Sequence[tuple[str, Rule]]) -> str | None:
    deciding = []
    for kind in kinds:
        first = next((where for where, other in before if _has(other, kind) and _covers(other, rule)), None)
        if first is None:
            return None
        deciding.append(first)
    return f"{', '.join(dict.fromkeys(deciding))} decides first"


def _has(rule: Rule, kind: str) -> bool:
    return "*" in rule.kinds or kind in rule.kinds


def _covers(earlier: Rule, later: Rule) -> bool:
    """True if the earlier rule matches every path that the later one does."""
    if earlier.paths is None or earlier.paths == later.paths:
        return True
    return (
        later.paths is not None and not _excludes(earlier.paths) and not _EVERYTHING.isdisjoint(earlier.paths)
    )


def _excludes(paths: Sequence[str]) -> bool:
    return any(path.startswith("!") for path in paths)
