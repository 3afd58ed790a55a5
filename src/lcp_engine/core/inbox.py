"""Decide what a held job awaits from a person, and what that person may do about it."""

from __future__ import annotations

from enum import StrEnum

from lcp_engine.core.kinds import QUESTION


class Awaits(StrEnum):
    """Decision of a person that a held job awaits."""

    APPROVAL = "approval"
    ANSWER = "answer"
    """To a question."""
    REPLY = "reply"
    """Of the planner, who is a person."""
    REJECTION = "rejection"
    """No worker executes its kind."""

    @property
    def is_words(self) -> bool:
        """True for what a person says, and no yes or no."""
        return self in (Awaits.ANSWER, Awaits.REPLY)


class Act(StrEnum):
    """Act of a person on a held job."""

    APPROVE = "approve"
    EDIT = "edit"
    """Approve it with other params."""
    TAKE = "take"
    """Approve parts of a merge, or other texts of its files."""
    RULE = "rule"
    """Approve it with a rule that lets such jobs run from now on."""
    ANSWER = "answer"
    REPLY = "reply"
    REJECT = "reject"
    SAY = "say"
    """Send the planner a message; the job stays held."""


def awaited_by(kind: str, *, is_relayed: bool, has_worker: bool) -> Awaits:
    """The decision that a held job awaits; `is_relayed`: it is a turn whose reply a person brings."""
    if kind == QUESTION:
        return Awaits.ANSWER
    if is_relayed:
        return Awaits.REPLY
    return Awaits.APPROVAL if has_worker else Awaits.REJECTION


def acts_on(awaits: Awaits, change: Act | None, *, may_have_rule: bool, is_heard: bool) -> frozenset[Act]:
    """The acts that a held job admits. `change` is how it is approved in another form, if it can be; `is_heard`: its
    mission has a planner that would read a message.

    A turn is not rejected, which would end its mission: that is cancelled.
    """
    if awaits is Awaits.REPLY:
        return frozenset({Act.REPLY})
    acts = {Act.REJECT, *([Act.SAY] if is_heard else [])}
    if awaits is Awaits.ANSWER:
        acts.add(Act.ANSWER)
    if awaits is Awaits.APPROVAL:
        acts |= {Act.APPROVE, change} if change is not None else {Act.APPROVE}
        acts |= {Act.RULE} if may_have_rule else set()
    return frozenset(acts)


def why_not(act: Act, awaits: Awaits, job: int, mission: int, *, has_ended: bool) -> str:
    """The reason why a held job, by its number, does not admit an act; `has_ended`: its mission has."""
    if awaits is Awaits.REPLY:
        return f"job {job} awaits your reply as the planner"
    if act is Act.SAY:
        fact = "has ended, and no planner reads it" if has_ended else "has no planner that would read it"
        return f"mission {mission} {fact}"
    if awaits is Awaits.REJECTION:
        return f"job {job}: no worker executes its kind: it can only be rejected"
    if act is Act.RULE:
        return "no rule can let such jobs run: a person decides each of them"
    return f"job {job} is {'a question' if awaits is Awaits.ANSWER else 'approved or rejected as it is'}"
