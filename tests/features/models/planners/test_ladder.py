"""What is asked of a server gets less, step by step, for refusals and for nothing else."""

from __future__ import annotations

from dataclasses import replace

from tests.tables import table

from lcp_engine.features.models.endpoints.errors import Again, Trouble, trouble_of, words_of
from lcp_engine.features.models.prompts.output_modes import Probe, Rung, Step, ask_for_less

LADDER = (
    Step(Rung.JSON_SCHEMA),
    Step(Rung.JSON_SCHEMA, in_envelope=True),
    Step(Rung.JSON_OBJECT),
    Step(Rung.PROMPT),
)
PROBE = Probe("http://here", "m")


def refusal(status: int | None, said: str = "no") -> Trouble:
    return Trouble("here: x", status=status, said=said)


@table("status", [400, 415, 422, 500, 501])
def test_a_refusal_means_the_next_rung_until_there_is_none(status: int) -> None:
    probe, steps = PROBE, []
    while (lower := ask_for_less(probe, refusal(status), LADDER)) is not None:
        probe = lower
        steps.append(probe.step)
    assert tuple(steps) == LADDER[1:]


STAYS: list[Trouble] = [
    refusal(None),
    refusal(401),
    refusal(403),
    refusal(404),
    refusal(429),
    refusal(502),
    refusal(503),
    refusal(400, "maximum context length is 4096 tokens"),
    refusal(400, "model 'x' not found"),
    replace(refusal(400, "Model is loading"), again=Again.LOADING),
]


@table("trouble", STAYS)
def test_other_trouble_is_no_reason_to_ask_for_less(trouble: Trouble) -> None:
    assert ask_for_less(PROBE, trouble, LADDER) is None


@table("word", ["stream_options", "temperature", "seed", "max_tokens", "minItems", "maxItems"])
def test_what_the_server_names_is_left_out_once(word: str) -> None:
    trouble = refusal(400, f"unsupported: '{word}'")
    first = ask_for_less(PROBE, trouble, LADDER)
    assert first == replace(PROBE, without=frozenset({word}))
    assert first is not None
    second = ask_for_less(first, trouble, LADDER)
    assert second == replace(first, step=LADDER[1])


def test_a_step_that_a_transport_does_not_have_begins_at_its_top() -> None:
    elsewhere = replace(PROBE, step=Step(Rung.JSON_OBJECT_WITH_SCHEMA))
    lower = ask_for_less(elsewhere, refusal(400), LADDER)
    assert lower is not None
    assert lower.step == LADDER[0]


@table(
    ("body", "words"),
    [
        ('{"error": {"message": "bad", "type": "t", "code": 3, "param": null}}', "bad; 3; t"),
        ('{"error": "bad"}', "bad"),
        ('{"detail": [{"msg": "bad"}]}', '[{"msg": "bad"}]'),
        ('[{"error": {"message": "bad"}}]', "bad"),
        ('{"message": "a\\nb\\u0007"}', "a b"),
        ("<html><head><TITLE>\n 502 </TITLE>", "a web page, '502'"),
        ("x" * 1000, "x" * 299 + "…"),
        ("", "nothing"),
        ("[" * 100_000, "[" * 299 + "…"),
    ],
)
def test_the_words_of_a_server_are_one_short_line(body: str, words: str) -> None:
    assert words_of(body, str) == words


MEANINGS: list[tuple[int, str, Again]] = [
    (503, '{"error": {"message": "Loading model"}}', Again.LOADING),
    (400, "Model is loading", Again.LOADING),
    (400, "Failed to load model: out of memory", Again.NEVER),
    (503, "busy", Again.BACK_OFF),
    (529, "overloaded", Again.WAIT),
    (429, "slow down", Again.WAIT),
    (429, '{"error": {"message": "see your billing page", "code": "rate_limit_exceeded"}}', Again.WAIT),
    (
        429,
        '[{"error": {"message": "exceeded your current quota", "status": "RESOURCE_EXHAUSTED"}}]',
        Again.WAIT,
    ),
    (429, '{"error": {"message": "exceeded your current quota", "code": "insufficient_quota"}}', Again.NEVER),
    (429, '{"error": {"code": "insufficient_quota"}}', Again.NEVER),
    (500, "the request exceeds the available context size", Again.NEVER),
    (401, "no", Again.NEVER),
    (302, "", Again.NEVER),
]


@table(("status", "body", "again"), MEANINGS)
def test_an_answer_tells_whether_to_come_back(status: int, body: str, again: Again) -> None:
    assert trouble_of("here", status, {}, body, str).again is again


AT = "Sun, 06 Nov 1994 08:49:37 GMT"
NOW = 784111777.0 - 10
RETRY_AFTER: list[tuple[dict[str, str], float | None]] = [
    ({"retry-after": "7"}, 7.0),
    ({"retry-after": " 1.5 "}, 1.5),
    ({"retry-after": "0"}, 0.0),
    ({"retry-after": "9" * 400}, 1e9),
    ({"retry-after-ms": "250", "retry-after": "1"}, 0.25),
    ({"retry-after-ms": "soon", "retry-after": "1"}, 1.0),
    *(
        ({"retry-after": wrong}, None)
        for wrong in ("", "-1", "+7", "1e9", "nan", "inf", "1_0", "٣", "Mon", "7, 7", "\0")
    ),
    ({"retry-after": AT}, 10.0),
    ({"retry-after": "Sunday, 06-Nov-94 08:49:37 GMT", "date": "Sun, 06 Nov 1994 08:49:22 GMT"}, 15.0),
    ({"retry-after": "Sun Nov  6 08:49:37 1994", "date": "Sun Nov  6 08:49:22 1994"}, 15.0),
    ({"retry-after": AT, "date": "Sun, 06 Nov 1994 08:50:37 GMT"}, 0.0),
    ({"retry-after": AT, "date": "yesterday"}, 10.0),
    ({"retry-after": "Sun, 99 Nov 1994 08:49:37 GMT"}, None),
    ({"x-ratelimit-reset-requests": "8.64s", "date": AT}, None),
]


@table(("headers", "seconds"), RETRY_AFTER)
def test_a_server_says_how_long_to_wait(headers: dict[str, str], seconds: float | None) -> None:
    trouble = trouble_of("here", 429, headers, "", str, now=NOW)
    assert (trouble.again, trouble.retry_after) == (Again.WAIT, seconds)


@table("stated", ["7", "-1", AT])
def test_a_503_asks_to_wait_if_it_says_so(stated: str) -> None:
    assert trouble_of("here", 503, {"retry-after": stated}, "", str).again is Again.WAIT
    assert trouble_of("here", 503, {"retry-after": " "}, "", str).again is Again.BACK_OFF
