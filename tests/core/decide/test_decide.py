"""The rules of the loop as a table (R4 to R6, R9, R11): what was known, what the planner said, what follows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from tests.tables import table

from lcp_engine.core.decide import (
    AskAgain,
    Claim,
    Continue,
    Correct,
    Decision,
    End,
    Evaluation,
    Outcome,
    PlanState,
    Wait,
    decide,
)
from lcp_engine.core.mission.spec import Limits
from lcp_engine.core.policy import Verdict
from lcp_engine.core.protocol.actions import (
    Action,
    AnalysisResult,
    CreateFollowupJobs,
    ErrorAction,
    JobSpec,
    Malformed,
    Manner,
    MissionComplete,
    Problem,
    WriteFile,
)
from lcp_engine.core.reasons import stated
from lcp_engine.errors import ErrorCode
from lcp_engine.features.plans.answered_plan import ExecutePlan
from lcp_engine.features.plans.stated_plan import StatedPlan

_Tell: TypeAlias = Callable[[Decision], str]

AUTO = Evaluation(Verdict.AUTO)
DENY = Evaluation(Verdict.DENY, stated("policy denies it"))
AGAIN = Evaluation(Verdict.AUTO, is_repeated=True)
TWIN = Evaluation(Verdict.HOLD, is_repeated=True, is_held_already=True)
BIG = Evaluation(Verdict.AUTO, written_bytes=60)
EVALUATIONS = {
    "auto": AUTO,
    "hold": Evaluation(Verdict.HOLD, stated("policy holds it")),
    "deny": DENY,
    "again": AGAIN,
    "twin": TWIN,
    "equal": Evaluation(Verdict.HOLD, key="the same job"),
    "same": Evaluation(Verdict.AUTO, key="the same job"),
    "no": Evaluation(Verdict.DENY, stated("policy denies it"), key="the same job"),
    "deep": Evaluation(Verdict.AUTO, depth=6),
    "60bytes": BIG,
}
DONE = MissionComplete(summary="all done")
REPLIES: dict[str, Action | Malformed] = {
    "done": DONE,
    "findings": AnalysisResult(summary="looks fine"),
    "error": ErrorAction(error="the disk is gone"),
    "prose": Malformed(errors=(Problem(path="", message="it is prose"),)),
    "no jobs": CreateFollowupJobs(new_jobs=()),
    "failed": CreateFollowupJobs(new_jobs=(JobSpec(kind="any", params={}),)).in_manner(Manner.VERIFICATION),
    "unclear": CreateFollowupJobs(new_jobs=(JobSpec(kind="any", params={}),)).in_manner(Manner.CLARIFICATION),
    "open": MissionComplete(summary="all done").in_manner(Manner.FOLLOW_UP),
    "write": WriteFile(rel_path="a.md", content="text"),
}
FLAGS = {"?": None, "yes": True, "no": False}

# Jobs are given by what the planner says of each: auto_dispatch true (yes), false (no) or nothing (?). What is known
# of them stands in the same order; `again` was requested before, a `twin` is held, two `equal` ones are the same.
TABLE = """
rule                                           | known                      | reply    | decision
-----------------------------------------------|----------------------------|----------|--------------------------
what may run runs                              | auto                       | ?        | continue: queued
the planner's yes adds nothing to that         | auto                       | yes      | continue: queued
of several, those that may run run             | auto hold                  | ? ?      | continue: queued, held
the planner may hold what policy lets run      | auto                       | no       | wait: held
and may not let run what policy holds          | hold                       | yes      | wait: held
nor what policy denies                         | deny                       | yes      | ask again: rejected
a denial is stricter than the planner's hold   | deny                       | no       | ask again: rejected
all held: a person decides                     | hold hold                  | ? ?      | wait: held*2
some held, the rest rejected: a person decides | hold deny                  | ? ?      | wait: held, rejected
all rejected: the planner reads why            | deny deny                  | ? ?      | ask again: rejected*2
one rejected does not stop the others          | deny auto                  | ? ?      | continue: rejected, queued
a job that nobody judged is held               |                            | yes      | wait: held
no jobs end the plan                           |                            | no jobs  | completed: no_followup_jobs
write_file is one job, under the same gates    | auto                       | write    | continue: queued
a write_file is held                           | hold                       | write    | wait: held
a write_file is denied                         | deny                       | write    | ask again: rejected
mission_complete ends the plan                 |                            | done     | completed: mission_complete
analysis_result ends the plan                  |                            | findings | completed: analysis_result
an error ends the plan                         |                            | error    | failed: error
R4 a reply that is no LCP is corrected         |                            | prose    | correct
R4 … twice in a row                            | corrections=1              | prose    | correct
R4 … and not a third time                      | corrections=2              | prose    | failed: invalid_reply
R6 six jobs are no valid reply                 | auto*6                     | ?*6      | correct
R6 … and end the plan like any invalid one     | auto*6 corrections=2       | ?*6      | failed: invalid_reply
R6 with overflow: hold the surplus is held     | auto*6 overflow=hold       | yes*6    | continue: queued*5, held
R6 … and denied where it is                    | auto*5 deny overflow=hold  | yes*6    | continue: queued*5, rejected
R6 what exceeds max_jobs is rejected           | auto*2 jobs_left=1         | ? ?      | continue: queued, LIMIT_REACHED
R6 a held job counts for max_jobs              | hold auto jobs_left=1      | ? ?      | wait: held, LIMIT_REACHED
R6 a denied one does not                       | deny auto jobs_left=1      | ? ?      | continue: rejected, queued
R6 none fits: the planner reads why            | auto jobs_left=0           | ?        | ask again: LIMIT_REACHED
R6 plans nest no deeper than max_depth         | deep                       | ?        | ask again: LIMIT_REACHED
R6 nor is more written than max_bytes_written  | 60bytes*2 bytes_left=100   | ? ?      | continue: queued, LIMIT_REACHED
R6 … but exactly as much                       | 60bytes bytes_left=60      | ?        | continue: queued
R6 in the last turn mission_complete counts    | last_turn=max_turns        | done     | completed: mission_complete
R6 … and analysis_result                       | last_turn=max_turns        | findings | completed: analysis_result
R6 … and error                                 | last_turn=max_turns        | error    | failed: error
R6 more jobs are too late                      | auto last_turn=max_turns   | ?        | failed: limit:max_turns
R6 … and so are none                           | last_turn=max_tokens       | no jobs  | failed: limit:max_tokens
R6 … and a write_file                          | auto last_turn=max_seconds | write    | failed: limit:max_seconds
R6 the last turn is never corrected            | last_turn=max_turns        | prose    | failed: limit:max_turns
R6 its mission_complete needs the checks too   | last_turn=max_turns failed_checks=x | done | failed: limit:max_turns
R9 done counts when the checks pass            | failed_checks=x            | done     | ask again: x
R9 … findings too                              | failed_checks=x            | findings | ask again: x
R9 … and no jobs                               | failed_checks=x            | no jobs  | ask again: x
R9 the planner is sent back three times        | failed_checks=x refused=2  | done     | ask again: x
R9 … and the fourth time a person is asked     | failed_checks=x refused=3  | done     | ask a person: accept as it is
R9 what is to be verified is asked before      | to_verify=y                | done     | verify: y
R9 … when the other checks pass                | failed_checks=x to_verify=y | done     | ask again: x
R9 … and not where no turn is left for it      | to_verify=y last_turn=max_turns | done | failed: limit:max_turns
R9 verified, it ends with what was claimed     | to_verify=y claim=yes      | findings | completed: mission_complete
R9 … in the last turn too                      | claim=yes last_turn=max_turns | done  | completed: mission_complete
R9 … if the other checks still pass            | claim=yes failed_checks=x  | done     | ask again: x
R9 an error says what is missing               | claim=yes                  | error    | ask again: $error
R9 … and so do jobs, which are not stored      | auto claim=yes             | ?        | ask again: $jobs
R9 … and none                                  | claim=yes                  | no jobs  | ask again: $jobs
R9 … three times, then a person is asked       | claim=yes refused=3        | error    | ask a person: accept as it is
R9 what is no verdict is corrected             | claim=yes                  | prose    | correct
R9 checks that did not pass lead to a turn     | auto verifications=2       | failed   | continue: queued
R9 … and after three cycles a person is asked  | auto verifications=3       | failed   | ask a person: verify again
R9 whether an answer is enough, a person says  |                            | open     | ask a person: this is enough
R9 … once the checks pass                      | failed_checks=x            | open     | ask again: x
R9 … not where there is no turn left           | last_turn=max_turns        | open     | completed: mission_complete
R9 … nor when a person was asked five times    | clarifications=5           | open     | completed: mission_complete
R9 … before it is verified                     | to_verify=y                | open     | ask a person: this is enough
R9 an error needs no checks                    | failed_checks=x            | error    | failed: error
R11 a repeated job runs                        | again                      | ?        | continue: queued
R11 … until the third time in a row            | again stalled=2            | ?        | failed: no_progress
R11 one new job is progress                    | again auto stalled=2       | ? ?      | continue: queued*2
R11 rejected three times in a row is none      | deny stalled=2             | ?        | failed: no_progress
R11 the twin of a held job is not stored       | twin                       | ?        | wait:
R11 … beside others neither                    | twin auto                  | ? ?      | continue: queued
R11 … and decided on where the rest is denied  | twin deny                  | ? ?      | wait: rejected
R11 two equal jobs that are held are one       | equal equal                | ? ?      | wait: held
R11 equal jobs of one reply are one            | same*5                     | ?*5      | continue: queued
R11 … and the others are what they are         | same auto same             | ? ? ?    | continue: queued*2
R11 … held if one of them is for review        | same*2                     | yes no   | wait: held
R11 … denied once                              | no no                      | ? ?      | ask again: rejected
R11 … which is no progress                     | no no stalled=2            | ? ?      | failed: no_progress
R11 … and count once for max_jobs              | same*3 auto jobs_left=2    | ?*4      | continue: queued*2
R11 … each for max_followups                   | same*6                     | ?*6      | correct
R11 … and not where the surplus is held        | same*6 overflow=hold       | ?*6      | continue: queued
R11 in a history from before they are several  | same*2 merges=no           | ? ?      | continue: queued*2
R11 steps of a plan that are equal are several | same*3                     | steps*3  | continue: queued, blocked*2
R12 steps are asked one after another          | auto*3                     | steps*3  | continue: queued, blocked*2
R12 … and max_followups does not count them    | auto*7                     | steps*7  | continue: queued, blocked*6
R12 … but max_jobs does                        | auto*2 jobs_left=1         | steps*2  | continue: queued, LIMIT_REACHED
R12 a held step holds up those behind it       | hold auto                  | steps*2  | wait: held, blocked
R12 … each held one by itself                  | auto hold auto             | steps*3  | continue: queued, held, blocked
R12 behind a denied step nothing is asked      | auto deny auto             | steps*3  | continue: queued, rejected*2
R12 all denied: the planner reads why          | deny auto                  | steps*2  | ask again: rejected*2
R12 a plan that waits already is not stored    | twin again                 | steps*2  | wait:
R12 a plan begins when each step is allowed    | auto hold again            | plan*3   | begin a plan
R12 … and is refused as a whole                | auto deny                  | plan*2   | correct
R12 … if an equal job is held                  | twin auto                  | plan*2   | correct
R12 max_jobs counts its steps                  | auto*3 jobs_left=2         | plan*3   | correct
R12 … max_depth those that ask                 | auto deep                  | plan*2   | correct
R12 … max_bytes_written all of them together   | 60bytes*2 bytes_left=100   | plan*2   | correct
R12 … max_followups does not                   | auto*7                     | plan*7   | begin a plan
R12 a third wrong plan ends the mission        | deny corrections=2         | plan*1   | failed: invalid_reply
R11 plans that only repeat are no progress     | again*2 stalled=2          | plan*2   | failed: no_progress
R6 in the last turn a plan is too late         | auto last_turn=max_turns   | plan*1   | failed: limit:max_turns
R13 a question to a person waits               | hold clarifications=4      | unclear  | wait: held
R13 … and after five rounds no more is asked   | hold clarifications=5      | unclear  | failed: error
R13 … not even with room for corrections       | hold clarifications=9      | unclear  | failed: error
"""
ROWS = [[cell.strip() for cell in line.split("|")] for line in TABLE.strip().splitlines()[2:]]


@table(("rule", "known", "reply", "decision"), ROWS, ids=[row[0] for row in ROWS])
def test_the_table(rule: str, known: str, reply: str, decision: str, tell: _Tell) -> None:
    expected = decision.replace("$jobs", "verification: the planner asked for jobs instead")
    expected = expected.replace("$error", "verification: the disk is gone")
    assert tell(decide(read_state(known), read_reply(reply))) == expected


def read_state(known: str) -> PlanState:
    facts = dict(word.split("=", 1) for word in known.split() if "=" in word)
    evaluations = [EVALUATIONS[word] for word in _repeated(word for word in known.split() if "=" not in word)]
    numbers = {name: int(value) for name, value in facts.items() if value.isdigit()}
    return state(
        evaluations=tuple(evaluations),
        overflow=facts.get("overflow", "refuse"),
        last_turn=facts.get("last_turn"),
        failed_checks=tuple(facts.get("failed_checks", "")),
        to_verify=tuple(facts.get("to_verify", "")),
        claim=Claim(Outcome.MISSION_COMPLETE, "claimed") if "claim" in facts else None,
        merges="merges" not in facts,
        **numbers,
    )


def read_reply(reply: str) -> Action | Malformed:
    if reply.startswith("steps*"):
        return jobs(*[None] * int(reply.removeprefix("steps*"))).in_manner(Manner.STEPS)
    if reply.startswith("plan*"):
        return plan(int(reply.removeprefix("plan*")))
    return REPLIES[reply] if reply in REPLIES else jobs(*(FLAGS[word] for word in _repeated(reply.split())))


def _repeated(words: Iterable[str]) -> Iterator[str]:
    """`auto*3` is `auto` three times."""
    for word in words:
        name, _, times = word.partition("*")
        yield from [name] * int(times or 1)


def jobs(*auto_dispatch: bool | None) -> CreateFollowupJobs:
    return CreateFollowupJobs(
        new_jobs=tuple(JobSpec(kind="any", params={}, auto_dispatch=flag) for flag in auto_dispatch)
    )


def plan(count: int) -> ExecutePlan:
    steps = [{"id": f"step-{number:03}", "tool": "any", "parameters": {}} for number in range(1, count + 1)]
    stated = StatedPlan.model_validate({"steps": steps})
    return ExecutePlan(
        new_jobs=jobs(*[None] * count).new_jobs, plan=stated, steps_at="custom_fields.execution_plan.steps"
    )


def state(*, overflow: str = "refuse", **known: object) -> PlanState:
    """A state of a plan with room for everything, but for what is `known`."""
    limits = Limits.model_validate({"overflow": overflow})
    return PlanState(**{"limits": limits, "jobs_left": 100, **known})  # type: ignore[arg-type]  # words of the table


def test_a_reply_with_too_many_jobs_names_the_cap_and_the_number() -> None:
    decision = decide(state(), jobs(*[None] * 7))
    assert isinstance(decision, Correct)
    assert decision.malformed.errors[0].path == "new_jobs"
    assert decision.malformed.errors[0].message == "at most 5 jobs in one reply; this one has 7"


def test_a_refused_plan_names_each_step_and_what_is_left_for_it() -> None:
    decision = decide(state(evaluations=(BIG, BIG, DENY, TWIN), bytes_left=100, jobs_left=3), plan(4))
    assert isinstance(decision, Correct)
    place = "custom_fields.execution_plan.steps"
    written = "the mission may write max_bytes_written = 104857600 bytes, has 40 left and this job needs 60"
    assert [(problem.path, problem.message) for problem in decision.malformed.errors] == [
        (place, "the plan has 4 steps, and max_jobs = 100 leaves 3"),
        (f"{place}[1]", f"it is not allowed: {written}"),
        (f"{place}[2]", "it is not allowed: policy denies it"),
        (f"{place}[3]", "an equal job is held already"),
    ]


def test_each_step_waits_for_the_one_before_it() -> None:
    decision = decide(state(evaluations=(AUTO,) * 3), jobs(None, None, None).in_manner(Manner.STEPS))
    assert isinstance(decision, Continue)
    assert [job.after for job in decision.jobs] == [None, 0, 1]


def test_a_plan_that_asks_too_often_for_clarification_ends_with_a_code_of_its_own() -> None:
    decision = decide(state(clarifications=5), REPLIES["unclear"])
    assert isinstance(decision, End)
    assert decision.code is ErrorCode.CLARIFICATION_EXHAUSTED
    assert decision.message == "a plan may ask 5 times for clarification; the planner asked once more"


def test_repetitions_are_counted_and_a_new_job_ends_the_row() -> None:
    def stalled(known: int, *evaluations: Evaluation) -> int:
        decision = decide(state(evaluations=evaluations, stalled=known), jobs(*[None] * len(evaluations)))
        assert isinstance(decision, Continue | Wait | AskAgain)
        return decision.stalled

    assert stalled(1, AGAIN) == 2
    assert stalled(0, DENY) == 1
    assert stalled(1, TWIN) == 2
    assert stalled(2, AGAIN, AUTO) == 0


def test_a_refused_end_is_no_stalled_turn() -> None:
    decision = decide(state(failed_checks=("a.md exists",), stalled=1), DONE)
    assert decision == AskAgain((), stalled=1, failed_checks=("a.md exists",))


@table("reply", REPLIES.values(), ids=REPLIES)
def test_whatever_ends_the_last_turn_names_the_limit(reply: Action | Malformed) -> None:
    decision = decide(state(last_turn="max_turns"), reply)
    assert isinstance(decision, End)
    assert decision.limit == "max_turns"


def test_a_rejection_says_which_cap_and_how_much_is_left() -> None:
    decision = decide(state(evaluations=(BIG,), bytes_left=10), jobs(None))
    assert isinstance(decision, AskAgain)
    (job,) = decision.jobs
    assert job.refusal is ErrorCode.LIMIT_REACHED
    assert job.reason is not None
    assert "max_bytes_written = 104857600" in job.reason.text
    assert "has 10 left and this job needs 60" in job.reason.text
