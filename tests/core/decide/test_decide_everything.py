"""Whatever the state and the reply: a decision, within every cap, and nothing runs that was to be held."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lcp_engine.core.decide import (
    MAX_CLARIFICATIONS,
    MAX_REFUSED,
    MAX_VERIFICATIONS,
    AskAgain,
    AskPerson,
    Choice,
    Claim,
    Continue,
    Correct,
    End,
    Evaluation,
    NewJob,
    Outcome,
    PlanState,
    Verify,
    Wait,
    decide,
    end_by_person,
)
from lcp_engine.core.job_states import State
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
from lcp_engine.errors import ErrorCode

_SMALL = st.integers(0, 4)
_TEXTS = st.sampled_from(["", "a", "b"])
_LIMITS = st.builds(
    Limits,
    max_followups=st.integers(1, 4),
    overflow=st.sampled_from(["refuse", "hold"]),
    max_jobs=_SMALL,
    max_depth=_SMALL,
    max_bytes_written=st.none() | _SMALL,
    max_corrections=_SMALL,
    max_stalled=st.integers(1, 4),
)
_EVALUATIONS = st.builds(
    Evaluation,
    verdict=st.sampled_from(Verdict),
    reason=st.none() | _TEXTS,
    refusal=st.sampled_from([ErrorCode.PATH_DENIED, ErrorCode.NOT_ALLOWED]),
    is_repeated=st.booleans(),
    is_held_already=st.booleans(),
    key=st.none() | _TEXTS,
    depth=_SMALL,
    written_bytes=_SMALL,
)
_STATES = st.builds(
    PlanState,
    limits=_LIMITS,
    evaluations=st.lists(_EVALUATIONS, max_size=7).map(tuple),
    jobs_left=st.integers(-2, 6),
    bytes_left=st.none() | st.integers(-2, 9),
    corrections=_SMALL,
    stalled=_SMALL,
    clarifications=st.integers(0, 7),
    verifications=st.integers(0, 4),
    to_verify=st.lists(_TEXTS, max_size=2).map(tuple),
    claim=st.none() | st.builds(Claim, st.sampled_from(Outcome), st.none() | _TEXTS),
    failed_checks=st.lists(_TEXTS, max_size=2).map(tuple),
    refused=_SMALL,
    last_turn=st.none() | st.sampled_from(["max_turns", "max_seconds", "max_tokens"]),
    unheard=st.booleans(),
    merges=st.booleans(),
)
_JOBS = st.builds(JobSpec, kind=st.just("any"), params=st.just({}), auto_dispatch=st.none() | st.booleans())
_REPLIES = st.one_of(
    st.builds(
        lambda jobs, manner: CreateFollowupJobs(new_jobs=jobs).in_manner(manner),
        st.lists(_JOBS, max_size=7).map(tuple),
        st.sampled_from(Manner),
    ),
    st.builds(WriteFile, rel_path=st.just("a"), content=_TEXTS, root=st.none()),
    st.builds(
        AnalysisResult, summary=_TEXTS, issues=st.none(), recommendations=st.none(), target_file=st.none()
    ),
    st.builds(
        lambda summary, manner: MissionComplete(summary=summary).in_manner(manner),
        _TEXTS,
        st.sampled_from([Manner.PLAIN, Manner.VERIFICATION, Manner.FOLLOW_UP]),
    ),
    st.builds(ErrorAction, error=_TEXTS),
    st.builds(
        Malformed, errors=st.lists(st.builds(Problem, path=_TEXTS, message=_TEXTS), max_size=2).map(tuple)
    ),
)
_TERMINAL = ("mission_complete", "analysis_result", "error")


@given(_STATES, _REPLIES)
def test_every_state_and_reply_give_a_decision_that_keeps_the_caps(
    state: PlanState, reply: Action | Malformed
) -> None:
    decision = decide(state, reply)
    match decision:
        case End(outcome, succeeded):
            assert not (succeeded and (state.failed_checks or outcome.startswith("limit:")))
            assert not (succeeded and state.unheard and state.last_turn is None)
        case Correct():
            assert state.corrections < state.limits.max_corrections
        case Verify(claim, questions):
            assert questions == state.to_verify
            assert questions
            assert state.claim is None
            assert not state.failed_checks
            assert claim.outcome in (*_TERMINAL, "no_followup_jobs")
        case AskPerson(question, options, claim, failed_checks):
            assert question
            assert len(set(options)) == len(options)
            assert bool(failed_checks) <= (claim is not None)
            if failed_checks:
                assert state.refused >= MAX_REFUSED
            elif claim is None:
                assert state.verifications >= MAX_VERIFICATIONS
            else:
                assert isinstance(reply, MissionComplete)
                assert reply.manner is Manner.FOLLOW_UP
                assert state.clarifications < MAX_CLARIFICATIONS
        case Continue(jobs, stalled) | Wait(jobs, stalled) | AskAgain(jobs, stalled):
            assert stalled < state.limits.max_stalled or (stalled == state.stalled and not jobs)
            # What asks for nothing, or answers whether the mission is done, leads to no job, and no cap is looked at.
            if isinstance(reply, CreateFollowupJobs | WriteFile) and reply.requested and state.claim is None:
                _check_jobs(state, reply, jobs)
            else:
                assert not jobs


@given(_STATES, _REPLIES)
def test_the_last_turn_only_ends(state: PlanState, reply: Action | Malformed) -> None:
    decision = decide(state, reply)
    if state.last_turn is not None:
        assert isinstance(decision, End)
        claimed = [] if state.claim is None else [state.claim.outcome]
        assert decision.outcome in (*_TERMINAL, *claimed, f"limit:{state.last_turn}")


@given(_STATES, _REPLIES)
def test_a_decision_says_truly_whether_anything_runs(state: PlanState, reply: Action | Malformed) -> None:
    decision = decide(state, reply)
    match decision:
        case Continue(jobs):
            assert any(job.state is State.QUEUED for job in jobs)
        case Wait(jobs):
            assert not any(job.state is State.QUEUED for job in jobs)
            assert any(job.state is State.HELD for job in jobs) or any(
                j.is_held_already for j in state.evaluations
            )
        case AskAgain(jobs):
            assert all(job.state is State.REJECTED for job in jobs)
            assert not (jobs and decision.failed_checks)
            assert jobs or decision.failed_checks or state.unheard


@given(_STATES, _REPLIES)
def test_a_turn_that_verifies_leads_to_no_job(state: PlanState, reply: Action | Malformed) -> None:
    decision = decide(state, reply)
    if state.claim is not None:
        assert not isinstance(decision, Continue | Wait | Verify)
        assert not (isinstance(decision, AskAgain) and decision.jobs)
        if isinstance(decision, End) and decision.succeeded:
            assert (decision.outcome, decision.message) == (state.claim.outcome, state.claim.message)
            assert isinstance(reply, AnalysisResult | MissionComplete)


@given(
    st.builds(Claim, st.sampled_from(Outcome), _TEXTS),
    st.lists(_TEXTS, min_size=1, max_size=2).map(tuple),
    st.integers().filter(lambda choice: choice not in (Choice.ACCEPT, Choice.GIVE_UP)),
)
def test_only_two_choices_of_a_person_end_a_plan(
    claim: Claim, failed_checks: tuple[str, ...], choice: int
) -> None:
    assert end_by_person(claim, failed_checks, choice) is None
    accepted, given_up = (
        end_by_person(claim, failed_checks, Choice.ACCEPT),
        end_by_person(claim, failed_checks, Choice.GIVE_UP),
    )
    assert accepted == End(claim.outcome, succeeded=True, message=claim.message, failed_checks=failed_checks)
    assert given_up is not None
    assert (given_up.outcome, given_up.succeeded) == ("no_progress", False)


def _check_jobs(state: PlanState, reply: CreateFollowupJobs | WriteFile, jobs: tuple[NewJob, ...]) -> None:
    limits, accepted = state.limits, [job for job in jobs if job.state is not State.REJECTED]
    requested = reply.requested
    manner = reply.manner if isinstance(reply, CreateFollowupJobs) else Manner.PLAIN
    if manner is Manner.STEPS:
        assert [job.after for job in accepted] == [None, *(job.index for job in accepted)][: len(accepted)]
        assert [*jobs[: len(accepted)]] == accepted, "a step behind a refused one"
        assert all(job.state is not State.QUEUED for job in accepted[1:])
    else:
        assert len(requested) <= limits.max_followups or limits.overflow == "hold"
        assert all(job.after is None for job in jobs)
    if manner is Manner.CLARIFICATION:
        assert state.clarifications < MAX_CLARIFICATIONS
    assert sum(job.state is State.QUEUED for job in jobs) <= limits.max_followups
    assert len(accepted) <= max(0, state.jobs_left)
    assert len({job.index for job in jobs}) == len(jobs)
    _check_merged(state, manner, jobs)
    known = dict(enumerate(state.evaluations[: len(requested)]))
    if state.bytes_left is not None and accepted:
        assert sum(known[job.index].written_bytes for job in accepted if job.index in known) <= max(
            0, state.bytes_left
        )
    for job in jobs:
        evaluation = known.get(job.index)
        if job.state is State.QUEUED:
            assert evaluation is not None
            assert evaluation.verdict is Verdict.AUTO
            assert all(requested[each].auto_dispatch is not False for each in (job.index, *job.merged))
            assert evaluation.depth <= limits.max_depth
        if evaluation is not None and evaluation.verdict is Verdict.DENY:
            assert job.state is State.REJECTED
        assert (job.state is State.REJECTED) == (job.refusal is not None)
        assert job.state in (State.QUEUED, State.HELD, State.REJECTED, State.BLOCKED)
        assert job.state is not State.BLOCKED or job.after is not None


def _check_merged(state: PlanState, manner: Manner, jobs: tuple[NewJob, ...]) -> None:
    keys = [evaluation.key for evaluation in state.evaluations]
    merged = [index for job in jobs for index in job.merged]
    assert len({job.index for job in jobs} | {*merged}) == len(jobs) + len(merged)
    for job in jobs:
        assert all(keys[index] == keys[job.index] is not None and index > job.index for index in job.merged)
    if manner is Manner.STEPS or not state.merges:
        assert not merged
    else:
        stored = [keys[job.index] for job in jobs if job.index < len(keys) and keys[job.index] is not None]
        assert len(stored) == len(set(stored)), "equal jobs are stored apart"


@given(_STATES, st.lists(_JOBS, max_size=7).map(tuple), st.sampled_from(Manner))
def test_auto_dispatch_true_never_loosens_what_policy_says(
    state: PlanState, jobs: tuple[JobSpec, ...], manner: Manner
) -> None:
    said = CreateFollowupJobs(new_jobs=jobs).in_manner(manner)
    eager = CreateFollowupJobs(
        new_jobs=tuple(job.model_copy(update={"auto_dispatch": True}) for job in jobs)
    ).in_manner(manner)
    for reply in (said, eager):
        decision = decide(state, reply)
        placed = decision.jobs if isinstance(decision, Continue | Wait | AskAgain) else ()
        for job in placed:
            verdict = (
                state.evaluations[job.index].verdict if job.index < len(state.evaluations) else Verdict.HOLD
            )
            assert verdict is not Verdict.DENY or job.state is State.REJECTED
            assert verdict is not Verdict.HOLD or job.state in (State.HELD, State.REJECTED)
