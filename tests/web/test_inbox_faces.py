"""What may be done about a held job: the same on the page, at the terminal and in `lcp top`, as the inbox says."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest
from pydantic import BaseModel, JsonValue
from tests.features.top.cli.test_top import Person, drive
from tests.walls import NEEDS_OVERLAY
from tests.web.conftest import House

from lcp_engine import Engine, Worker
from lcp_engine.cli.console import prompts
from lcp_engine.cli.console.terminal import Choice
from lcp_engine.inbox import Act, Awaits

USUAL = frozenset({Act.APPROVE, Act.EDIT, Act.RULE, Act.REJECT, Act.SAY})
QUESTION = frozenset({Act.ANSWER, Act.REJECT, Act.SAY})
HOLD: JsonValue = [{"kinds": ["write_file"], "do": "hold"}]
STEP: JsonValue = {
    "id": "one",
    "tool": "write_file",
    "parameters": {"rel_path": "notes.md", "content": "# Notes\n"},
}


@dataclass(frozen=True)
class Case:
    """A held job, made by `hold`, with what it awaits and admits, and words that each face shows of it."""

    name: str
    hold: Callable[[House], int]
    awaits: Awaits
    acts: frozenset[Act]
    words: str = ""


def _only_held(house: House) -> int:
    (job,) = house.engine.jobs(states=["held"])
    return job.id


def _hold(*jobs: JsonValue, **spec: JsonValue) -> Callable[[House], int]:
    def hold(house: House) -> int:
        house.run(house.ask(*jobs), house.complete, **spec)
        return _only_held(house)

    return hold


def _write(path: str = "notes.md") -> JsonValue:
    return House.job("write_file", rel_path=path, content="# Notes\n")


def _of_an_ended_mission(house: House) -> int:
    looks = house.job("list_files", root=".")
    house.run(house.ask(looks, _write()), house.complete, **{"continue": "per_result"})
    return _only_held(house)


def _without_a_planner(house: House) -> int:
    house.engine.launch({"goal": "Write.", "plan": {"steps": [STEP]}, "policy": HOLD}, root=house.root)
    house.work()
    return _only_held(house)


def _reply(house: House) -> int:
    house.engine.launch({"goal": "Find out.", "planner": {"type": "human"}}, root=house.root)
    house.work()
    return _only_held(house)


def _merge(house: House) -> int:
    house.run(house.ask(_write()), house.complete, stage=True)
    return _only_held(house)


def _apply(house: House) -> int:
    house.run(
        house.ask(house.job("run_command", command=["sh", "-c", "echo new > new.txt"])),
        house.complete,
        commands={"allow": [["sh", "..."]], "changes": "hold"},
        policy=[{"kinds": ["run_command"], "do": "auto"}],
    )
    return _only_held(house)


def _of_a_kind_that_is_gone(house: House) -> int:
    class Nothing(BaseModel):
        """No params, and an empty result."""

    mail = Worker(
        kind="mail", params=Nothing, result=Nothing, execute=lambda params, context: Nothing()
    ).for_any_params()
    with Engine(house.engine.instance.url, workers=[mail]) as engine:
        replies: list[JsonValue] = [house.ask(house.job("mail")), house.complete]
        spec: dict[str, JsonValue] = {"goal": "Tell.", "planner": {"type": "script", "replies": replies}}
        engine.launch({**spec, "policy": [{"kinds": ["mail"], "do": "hold"}]}, root=house.root)
        engine.work(until_idle=True)
    return _only_held(house)


FIELDS: JsonValue = [{"id": "name", "label": "Which name?"}]
TWO: JsonValue = [{"kinds": ["write_file"], "do": "hold", "approvals": 2}]
CASES = [
    Case("write", _hold(_write()), Awaits.APPROVAL, USUAL),
    Case("two approvals", _hold(_write(), policy=TWO), Awaits.APPROVAL, USUAL, "0 of 2 approvals"),
    Case(
        "soon rejected", _hold(_write(), hold_timeout=3600), Awaits.APPROVAL, USUAL, "rejected automatically"
    ),
    Case("ended", _of_an_ended_mission, Awaits.APPROVAL, USUAL - {Act.SAY}, "ended"),
    Case("no planner", _without_a_planner, Awaits.APPROVAL, USUAL - {Act.SAY}),
    Case(
        "command",
        _hold(House.job("run_command", command=["true"]), commands={"allow": [["true"]]}),
        Awaits.APPROVAL,
        USUAL - {Act.RULE},
    ),
    Case("question", _hold(House.job("ask_user", question="Which?")), Awaits.ANSWER, QUESTION, "Which?"),
    Case(
        "form",
        _hold(House.job("ask_user", question="Which?", fields=FIELDS)),
        Awaits.ANSWER,
        QUESTION,
        "Which name?",
    ),
    Case("reply", _reply, Awaits.REPLY, frozenset({Act.REPLY})),
    Case("merge", _merge, Awaits.APPROVAL, frozenset({Act.APPROVE, Act.TAKE, Act.REJECT, Act.SAY})),
    pytest.param(
        Case("apply", _apply, Awaits.APPROVAL, frozenset({Act.APPROVE, Act.REJECT}), "ended"),
        marks=NEEDS_OVERLAY,
        id="apply",
    ),
    Case("no worker", _of_a_kind_that_is_gone, Awaits.REJECTION, frozenset({Act.REJECT, Act.SAY})),
]
each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: getattr(case, "name", None))


@each_case
def test_the_inbox_says_what_a_job_awaits_and_admits(house: House, case: Case) -> None:
    job_id = case.hold(house)
    review = house.engine.inbox.review(job_id)
    assert (review.held.awaits, review.held.acts) == (case.awaits, case.acts)
    assert (review.look is None) == case.awaits.is_words
    assert (review.approvals is not None) == (case.name == "two approvals")
    assert (review.held.expires_at is not None) == (case.name == "soon rejected")
    assert review.held.has_ended == (case.words == "ended")
    assert (review.question is not None) == (case.awaits is Awaits.REPLY)


ON_PAGE = {
    Act.APPROVE: 'action="/jobs/{}/approve"',
    Act.EDIT: 'href="/jobs/{}/edit"',
    Act.TAKE: 'id="take"',
    Act.RULE: 'action="/jobs/{}/always"',
    Act.REJECT: 'action="/jobs/{}/reject"',
    Act.SAY: 'action="/jobs/{}/say"',
}
IN_LIST = {
    Act.APPROVE: ON_PAGE[Act.APPROVE],
    Act.REJECT: ON_PAGE[Act.REJECT],
    Act.RULE: 'href="/jobs/{}#always"',
}


@each_case
def test_the_page_offers_just_that(house: House, case: Case) -> None:
    job_id = case.hold(house)
    page, inbox = house.get(f"/jobs/{job_id}"), house.get("/inbox")
    assert (page.status, inbox.status) == (200, 200)
    offered = {act for act, mark in ON_PAGE.items() if mark.format(job_id) in page.text}
    if f'action="/jobs/{job_id}/answer"' in page.text:
        offered.add(Act.REPLY if "Your reply, as the planner" in page.text else Act.ANSWER)
    assert offered == case.acts
    listed = {act for act, mark in IN_LIST.items() if mark.format(job_id) in inbox.text}
    assert listed == case.acts & IN_LIST.keys()
    is_edited = bool(case.acts & {Act.EDIT, Act.TAKE})
    assert (f'href="/jobs/{job_id}/edit"' in inbox.text) == is_edited
    assert house.get(f"/jobs/{job_id}/edit").status == (200 if is_edited else 409)
    said = re.sub("will be rejected at", "rejected automatically", page.words)
    assert case.words in said


AT_TERMINAL = {
    "yes": Act.APPROVE,
    "all": Act.APPROVE,
    "no": Act.REJECT,
    "part": Act.TAKE,
    "say": Act.SAY,
    "rule": Act.RULE,
    "paste": Act.REPLY,
    "fill": Act.ANSWER,
}


@each_case
def test_the_terminal_offers_just_that(
    house: House, case: Case, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job_id, offered = case.hold(house), set[Act]()

    def choose(question: str, choices: Sequence[Choice]) -> str:
        words = {choice.word for choice in choices}
        offered.update(AT_TERMINAL[word] for word in words & AT_TERMINAL.keys())
        if "edit" in words and not offered & {Act.TAKE, Act.REPLY}:
            offered.add(Act.EDIT)
        return "later"

    def read_line(question: str) -> str:
        offered.add(Act.ANSWER)
        return ""

    monkeypatch.setattr(prompts, "choose", choose)
    monkeypatch.setattr(prompts, "read_line", read_line)
    prompt = prompts.JobPrompt(house.engine, ["kind"])
    assert prompt.ask(house.engine.job(job_id), "") is prompts.PromptResult.LATER
    # An empty line puts a question off, and nothing else is offered there.
    assert offered == (case.acts & {Act.ANSWER} or case.acts)
    assert case.words in capsys.readouterr().err


IN_TOP = {
    Act.APPROVE: ("a", "approve 1 held"),
    Act.EDIT: ("e", "The params of job"),
    Act.TAKE: ("e", "notes.md"),
    Act.RULE: ("r", "rule"),
    Act.ANSWER: ("enter", ""),
    Act.REPLY: ("enter", "Your reply"),
    Act.REJECT: ("n", "Why? The planner reads it"),
    Act.SAY: ("s", "Message to the planner"),
}
REFUSALS = (
    "is a question: Enter answers it",
    "awaits your reply as the planner",
    "has no planner that would read it",
    "has ended, and no planner reads it",
    "it can only be rejected",
    "no rule can let such jobs run",
    "is approved or rejected as it is",
)


OFTEN = ("write", "merge", "reply", "no worker")


@pytest.mark.turns(2)
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=pytest.mark.proof, id=case.name)
        if isinstance(case, Case) and case.name not in OFTEN
        else case
        for case in CASES
    ],
    ids=lambda case: getattr(case, "name", None),
)
def test_lcp_top_does_just_that(house: House, case: Case) -> None:
    job_id = case.hold(house)

    async def script(person: Person) -> None:
        await person.opens_inbox(f"job {job_id}: ", case.words)
        for act, (key, opened) in IN_TOP.items():
            is_shared = act in (Act.EDIT, Act.TAKE) and case.acts & {Act.EDIT, Act.TAKE, Act.REPLY}
            if act in (Act.ANSWER, Act.REPLY) or (is_shared and act not in case.acts):
                continue
            await person.press(key)
            if act in case.acts:
                await person.sees(opened)
                await person.press("escape")
                await person.sees(f"job {job_id}: ")
            else:
                await person.until(lambda: any(words in _flat(person.screen) for words in REFUSALS))
                await person.press("1", "2")
                await person.looks_at(f"job {job_id}: ")

    drive(house.engine, script, size=(100, 30))
    assert house.engine.job(job_id).state == "held"


def _flat(screen: str) -> str:
    return " ".join(screen.split())
