"""R1: one JSON object is found in any text, losslessly, or the text is refused; nothing is repaired."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from lcp_engine.core.protocol.strict_json import THOUGHTS, Framed, Unframed, find_object, is_bare_object

DOCS = Path(__file__).parents[3] / "docs/protocol.md"
OBJECT = '{"ok": true, "n": [1, {"a": "ä\\n\\u00e9 😀"}]}'
BOM, THOUGHT, FENCE = "byte order mark", "<think> section", "Markdown fence"
BEFORE, AFTER = "prose before the object", "prose after the object"


@table(
    ("text", "recovered"),
    [
        (OBJECT, []),
        (f" \r\n\t{OBJECT}\n\n", []),
        (f"\ufeff{OBJECT}", [BOM]),
        (f"<think>hm</think>{OBJECT}", [THOUGHT]),
        (f"<think>hm</think> <think>hm</think>\n{OBJECT}", [THOUGHT]),
        (f"<think>a <think> b</think> c</think>{OBJECT}", [THOUGHT]),
        (f"<think>{OBJECT} and {{'x': 1}} and {{\"</think>{OBJECT}", [THOUGHT]),
        (f"no opener here</think>{OBJECT}", [THOUGHT]),
        (f'I could say {{"ok": true, ...}} or {OBJECT}.</think>{OBJECT}', [THOUGHT]),
        (f'Not {{"a": NaN, "b": {{"c": 1, "c": 2}}}} but</think>{OBJECT}', [THOUGHT]),
        (f"{OBJECT} was a draft</think>{OBJECT}", [THOUGHT]),
        (f"Well. <think>hm</think>{OBJECT}", [BEFORE, THOUGHT]),
        (f"```json\n{OBJECT}\n```", [FENCE]),
        (f"```\n{OBJECT}\n```\n", [FENCE]),
        (f"~~~json\n{OBJECT}\n~~~", [FENCE]),
        (f"````json\n{OBJECT}\n````", [FENCE]),
        (f"```json {OBJECT} ```", [FENCE]),
        (f"Here:\n```json\n{OBJECT}\n```\n", [FENCE, BEFORE]),
        (f"```json\n{OBJECT}\n```\nDone.", [FENCE, AFTER]),
        (f"```json\n{OBJECT}\nDone.", [BEFORE, AFTER]),
        (f"Here: {OBJECT}.", [BEFORE, AFTER]),
        (f"** {OBJECT} — done, 完了!", [BEFORE, AFTER]),
        (f"Here:\n{OBJECT}\n```\n---\n_*_", [BEFORE, AFTER]),
        (f"Why? <think>hm</think> {OBJECT} 👍", [BEFORE, THOUGHT, AFTER]),
        (f"<think>hm</think> {OBJECT} Done.", [THOUGHT, AFTER]),
        (f"Here: {OBJECT}", [BEFORE]),
        (f"{OBJECT} Done {{really}}.", [AFTER]),
        (f"See [1], {OBJECT}", [BEFORE]),
        (f"for (x) {{ y }} {OBJECT}", [BEFORE]),
        (f"{{a {{ x }} }} }} {OBJECT}", [BEFORE]),
        (f"```json {{a=b}}\n{OBJECT}\n```", [BEFORE, AFTER]),
        (f"{{ hm </think>{OBJECT}", [THOUGHT]),
        (f"<think>{{ hm</think>{OBJECT}", [THOUGHT]),
        (f"{{ a <think>hm</think> }} {OBJECT}", [BEFORE, THOUGHT]),
        (f"{OBJECT} {{ x", [AFTER]),
        (f"{OBJECT} <think>and then?</think>", [AFTER]),
        (f"```json\n{OBJECT}", [BEFORE]),
        (f"\ufeff<think>hm</think>Here:\n```json\n{OBJECT}\n```", [BOM, THOUGHT, FENCE, BEFORE]),
    ],
)
def test_what_stands_around_the_object_is_removed_and_named(text: str, recovered: list[str]) -> None:
    found = find_object(text)
    assert isinstance(found, Framed)
    assert found.value == json.loads(OBJECT)
    assert text[found.start : found.end] == OBJECT
    assert list(found.recovered) == recovered


@table(("mark", "closer"), list(THOUGHTS.items()))
def test_thoughts_between_the_marks_of_any_model_are_removed(mark: str, closer: str) -> None:
    for text in (
        f"{mark}hm </thin> {OBJECT}, or <other>?{closer}\n{OBJECT}",
        f"{mark}{closer}{mark} x {closer}{OBJECT}",
    ):
        found = find_object(text)
        assert isinstance(found, Framed)
        assert found.value == json.loads(OBJECT)
        assert found.recovered == (f"{mark} section",)
    for unclosed in (f"{mark}hm {OBJECT}", f"{OBJECT} {mark}"):
        refused = find_object(unclosed)
        assert isinstance(refused, Unframed)
        assert f"{mark} is never closed" in refused.message
    kept = find_object(json.dumps({"content": f"{mark}{closer}{closer}{mark}"}))
    assert isinstance(kept, Framed)
    assert kept.recovered == ()
    assert f"`{mark}…{closer}`" in DOCS.read_text(encoding="utf-8")


HARMONY = "<|channel|>analysis<|message|>"


@table(
    ("text", "recovered"),
    [
        (f"{HARMONY}hm {{}}<|end|><|start|>assistant<|channel|>final<|message|>{OBJECT}<|return|>",
         [f"{HARMONY} section", "channel marks"]),
        (f"<|start|>assistant{HARMONY}hm<|end|>\n<|channel|>final <|constrain|>json<|message|>```json\n{OBJECT}\n```",
         ["channel marks", f"{HARMONY} section", FENCE]),
        (f"<|channel|>commentary<|message|>I look.<|end|><|channel|>final<|message|>{OBJECT}<|return|>",
         ["channel marks", BEFORE]),
        (f"<|channel|>final<|message|>{OBJECT}<|end|>", ["channel marks"]),
        (f"<|START_THINKING|>a<|END_THINKING|><|START_RESPONSE|>{OBJECT}<|END_RESPONSE|>",
         ["<|START_THINKING|> section", "channel marks"]),
        (f"<|channel>thought\nhm\n<channel|>{OBJECT}<turn|>", ["<|channel>thought section", "channel marks"]),
        (f"{{ hm </thinking>{OBJECT}", ["<thinking> section"]),
        (f"<think>a</think><thinking>b</thinking>{OBJECT}", [THOUGHT, "<thinking> section"]),
    ],
)  # fmt: skip
def test_marks_around_thoughts_and_replies_are_no_prose(text: str, recovered: list[str]) -> None:
    found = find_object(text)
    assert isinstance(found, Framed), found
    assert found.value == json.loads(OBJECT)
    assert list(found.recovered) == recovered


@table(
    ("thought", "is_bare"),
    [
        (OBJECT, True),
        (f"\n {OBJECT}\n", True),
        ("", False),
        (f"Hm. {OBJECT}", False),
        (f"{OBJECT} No.", False),
        (f"{OBJECT}.", False),
        (f"```json\n{OBJECT}\n```", False),
        (f"<think>hm</think>{OBJECT}", False),
        (f"{OBJECT}\n{OBJECT}", False),
        (OBJECT[:-1], False),
        (f"[{OBJECT}]", False),
    ],
)
def test_a_bare_object_has_nothing_around_it(thought: str, is_bare: bool) -> None:
    assert is_bare_object(thought) is is_bare


@table(
    "content",
    ["</think>", "<think>", "<think></think>", "```", '{"a": 1}', "{{", "[", "\ufeff", "\\ud800", "\\u0000"],
)
def test_what_stands_in_a_string_of_the_object_is_text(content: str) -> None:
    found = find_object(json.dumps({"content": content}))
    assert isinstance(found, Framed)
    assert found.value == {"content": content}
    assert found.recovered == ()


@table(
    ("text", "message"),
    [
        ("", "one JSON object is expected; the reply is empty"),
        (" \n", "one JSON object is expected; the reply is empty"),
        ("<think>hm</think>", "one JSON object is expected; the reply is empty"),
        ("hello", 'one JSON object is expected; found only "hello"'),
        ("[1, 2]", "one JSON object is expected; found an array"),
        (json.dumps(OBJECT), "one JSON object is expected; found a string that holds one"),
        (f"[{OBJECT}]", "one JSON object is expected; this one is inside an array"),
        (f"see [{OBJECT}] there", "one JSON object is expected; this one is inside an array"),
        (f'see ["[", {OBJECT}]', "one JSON object is expected; this one is inside an array"),
        (f"<think>hm {OBJECT}", "line 1, column 1: <think> is never closed"),
        (f"{OBJECT}\n <think>", "line 2, column 2: <think> is never closed"),
        (f"{OBJECT}\n{OBJECT}", "line 2, column 1: exactly one JSON object is expected; another begins here"),
        (f"For example {OBJECT}. What is the goal?", "here they stand on both sides"),
        (f"Here:\n```json\n{OBJECT}\n```\nDone.", "here they stand on both sides"),
        (f"例えば {OBJECT} です", "here they stand on both sides"),
        (f"1. {OBJECT} 2.", "here they stand on both sides"),
        (f"Well. <think>hm</think>{OBJECT} Done.", "here they stand on both sides"),
        (f"Well. {OBJECT} <think>hm</think>", "here they stand on both sides"),
        (f"```json title=a\n{OBJECT}\n```\nDone.", "here they stand on both sides"),
        (f"<answer>{OBJECT}</answer>", "here they stand on both sides"),
        (f"{OBJECT} {{ }}", None),
        (f"{{}} {OBJECT}", None),
        (f"Use {{'a': 1}}. {OBJECT}", None),
        (f'Use {{"a": ...}}. {OBJECT}', None),
        (f'{{"a": 1}} {{"b": "</think>", "c": {OBJECT}}}', None),
        (f'{{"a": tru, "b": "</think>", "c": {OBJECT}}}', None),
        (f"{OBJECT}</think>", "one JSON object is expected; the reply is empty"),
        (f"{{{OBJECT}}}", 'a key in double quotes is expected; found "{'),
        (
            f"{{ reply: {OBJECT}}}",
            "line 1, column 1: the brace that opens here is not closed before the object",
        ),
        (f"{{reply:{OBJECT}", "line 1, column 1: the brace that opens here is not closed"),
        (f"{{\nHere it is:\n{OBJECT}", "line 1, column 1: the brace that opens here is not closed"),
        (f"Well:\n{{ // {{a}}\n{OBJECT}\n}}", "line 2, column 1: the brace that opens here is not closed"),
        (f"{{ a <think>}}</think> {OBJECT}", "line 1, column 1: the brace that opens here is not closed"),
        (f"<think>hm</think> {{ reply: {OBJECT}}}", "line 1, column 19: the brace that opens here"),
        ('{"a": 1, "a": 2}', 'an object has each key once; "a" occurs more than once in one'),
        ('{"x": [{"a": 1, "b": 3, "a": 1}]}', '"a" occurs more than once'),
        ('{"a": 1, "\\u0061": 2}', '"a" occurs more than once'),
        ('{"a": NaN}', "a number is written with digits; NaN is not JSON"),
        ('{"a": -Infinity}', "-Infinity is not JSON"),
        ('{"a": 1e999}', 'a number fits a double (at most about 1.8e308); "1e999" does not'),
        ('{"a": -1E+400}', "a number fits a double"),
        ('{"a": ' + "9" * 400 + ".5}", "a number fits a double"),
        ('{"a": ' + "9" * 250 + "e99}", "a number fits a double"),
        ('{"a": ' + "1" * 1001 + "}", "an integer has 1,000 digits at most; one here has 1,001"),
        ('{"a": -' + "1" * 9999 + "}", "an integer has 1,000 digits at most; one here has 9,999"),
        ('{"a": ' * 101 + "1" + "}" * 101, "nesting goes to 100 levels at most; this object goes deeper"),
        ('{"a": ' + "[" * 100 + "]" * 100 + "}", "nesting goes to 100 levels at most"),
        ('{"a":' * 100_000, "nesting goes to 100 levels at most"),
        ('{"a": "\\ud800"}', "surrogates come in pairs; \\ud800 is alone"),
        ('{"\\udc00": 1}', "\\udc00 is alone"),
        ('{"a": "\\\\ud83d\\ude00"}', "\\ude00 is alone"),
        ('{"a": "\\u0000"}', "a string must not contain U+0000"),
        ('{"\\\\\\u0000": 1}', "a string must not contain U+0000"),
        ('{"a": "\0"}', "line 1, column 8: a reply must not contain U+0000"),
        (f"{OBJECT}\0", "a reply must not contain U+0000"),
        (f"\udfff{OBJECT}", "line 1, column 1: a reply is Unicode text; here is a lone surrogate"),
        ('{"a": 1', "found the end of the text: the object is not complete"),
        ('{"a": [1, 2', "found the end of the text: the object is not complete"),
        (
            '{"a": "x',
            "line 1, column 7: a string ends with a double quote; the string that begins here never ends",
        ),
        ('{"a":\n "C:\\S"}', "line 2, column 5: a backslash in a string"),
        ('{"a": "\\u12"}', "\\u takes four hexadecimal digits"),
        ('{"a": "x\ty"}', "control characters in a string are escaped"),
        ('{"a": 1,}', 'line 1, column 8: no comma is expected before the end; found ",}"'),
        ('{"a": [1,]}', 'line 1, column 9: no comma is expected before the end; found ",]}"'),
        ('{"a": [1\n,\t\n ]}', "line 2, column 1: no comma is expected before the end"),
        ('{"a": [1,}', "a JSON value is expected"),
        ('{"a": 1,,}', "a key in double quotes is expected"),
        ('{"a" 1}', "a colon is expected after the key"),
        ('{"a": 1 "b": 2}', "a comma or the closing bracket is expected"),
        ('{"a": 01}', "a comma or the closing bracket is expected"),
        ('{"a": True}', "a JSON value is expected"),
        ('{"a": "he said "hi""}', "line 1, column 17: a comma or the closing bracket is expected"),
        ("{'a': 1}", "a key in double quotes is expected"),
        ("{“a”: 1}", "a key in double quotes is expected"),
        ("<think></think>" * 101 + OBJECT, "100 thoughts are read at most; there are more"),
    ],
)
def test_anything_else_is_refused_and_never_repaired(text: str, message: str | None) -> None:
    found = find_object(text)
    assert isinstance(found, Unframed)
    assert (message or "") in found.message


@table(
    "text",
    [
        '{"a": ' * 100 + "1" + "}" * 100,
        '{"a": ' + "1" * 1000 + "}",
        '{"a": 1.7976931348623157e308}',
        '{"a": 1e-999}',
        '{"a": "' + "[{" * 200 + '"}',
        '{"a": "\\"' + "[{" * 200 + '\\\\"}',
        '{"a": "\\ud83d\\ude00 \\\\ud800 \\\\u0000"}',
        '{"a": "1e999 ' + "1" * 2000 + '", "b": 1.5}',
        "<think></think>" * 100 + OBJECT,
    ],
)
def test_a_limit_is_not_reached_before_it_is(text: str) -> None:
    assert isinstance(find_object(text), Framed)


@pytest.mark.proof
@table("prose", ["{x", "{x}", "}", "{x<think></think>", "<think", "<|end|>", "[THINK<channel|>x"])
def test_millions_of_braces_in_prose_are_read_once(prose: str) -> None:
    # 4 million characters: anything worse than linear would take hours.
    assert isinstance(find_object(prose * (4_000_000 // len(prose)) + OBJECT), Framed | Unframed)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)
PROSE = st.text(alphabet="ab {[}],:.\n`~", max_size=20)
PIECES = st.sampled_from(
    ['{"a": ', "{", "}", "[", "]", ",", '"', "\\", "\\u0000", "\\ud800", "1e999", "NaN", "```", "~~~json\n", "<think>",
     "</think>", "\ufeff", "\0", "\ud800", " ", "\n", "x", '{"ok": true}', "{}", ":", "null"]
)  # fmt: skip


@given(st.one_of(st.text(), st.text(st.characters()), st.lists(PIECES, max_size=30).map("".join)))
def test_any_text_gives_a_value_and_what_is_accepted_is_a_part_of_it(text: str) -> None:
    found = find_object(text)
    if isinstance(found, Framed):
        assert found.value == json.loads(text[found.start : found.end])


@given(st.dictionaries(st.text(), JSON, min_size=1, max_size=4), PROSE, PROSE, st.booleans())
def test_an_object_is_read_as_it_stands_or_refused(
    value: dict[str, object], before: str, after: str, escaped: bool
) -> None:
    written = json.dumps(value, ensure_ascii=escaped)
    found = find_object(before + written + after)
    if isinstance(found, Framed):
        assert found.value == value
        assert (before + written + after)[found.start : found.end] == written


@given(st.dictionaries(st.text(), JSON, max_size=4), st.integers(min_value=0))
def test_a_truncated_object_is_refused(value: dict[str, object], cut: int) -> None:
    written = json.dumps({"ok": value})
    assert isinstance(find_object(written[: cut % len(written)]), Unframed)
