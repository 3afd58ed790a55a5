"""The expression of a condition: `step-001.status == "failed" or step-002.result.total > 3`. Pure.

It is parsed into values and never executed as code: comparisons of fields of steps with texts, numbers, true, false and
null, joined by `and`, `or` and `not`. A field that is not there is null.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias, assert_never

from lcp_engine.core.json_values import JsonValue
from lcp_engine.core.safe_text import shortened
from lcp_engine.features.plans.references import PATH, STEP, Place, path_of

MOST_CHARACTERS = 2000
MOST_DEPTH = 50
"""Parentheses and `not` within each other."""


class NotAnExpression(ValueError):
    """Why a text is not an expression, and the character at which that shows, from 1."""

    def __init__(self, at: int, said: str) -> None:
        super().__init__(f"character {at}: {said}")


class StepFacts(NamedTuple):
    """What an expression may ask of a step: how it has ended, and its result."""

    status: str
    result: JsonValue


@dataclass(frozen=True)
class Literal:
    value: JsonValue


@dataclass(frozen=True)
class StepField:
    """The status of a step, or a place in its result."""

    step: str
    is_status: bool
    path: Place = ()


@dataclass(frozen=True)
class Comparison:
    left: Literal | StepField
    sign: str
    right: Literal | StepField


@dataclass(frozen=True)
class Negation:
    part: Expression


@dataclass(frozen=True)
class AllOf:
    parts: tuple[Expression, ...]


@dataclass(frozen=True)
class AnyOf:
    parts: tuple[Expression, ...]


Expression: TypeAlias = Literal | StepField | Comparison | Negation | AllOf | AnyOf


def parse_expression(text: str) -> Expression:
    """The expression that `text` states. Raises `NotAnExpression`, whatever the text is."""
    if len(text) > MOST_CHARACTERS:
        raise NotAnExpression(
            MOST_CHARACTERS + 1, f"at most {MOST_CHARACTERS:,} are read, it has {len(text):,}"
        )
    reader = _Reader(text)
    expression = reader.any_of(MOST_DEPTH)
    if (left := reader.peek()) is not None:
        raise NotAnExpression(left.at, f"'and', 'or' or the end is expected, not {_shown(left)}")
    return expression


def steps_of(expression: Expression) -> Iterator[str]:
    """The steps whose fields an expression names, one for each field."""
    match expression:
        case StepField(step):
            yield step
        case Comparison(left, _, right):
            yield from steps_of(left)
            yield from steps_of(right)
        case Negation(part):
            yield from steps_of(part)
        case AllOf(parts) | AnyOf(parts):
            for part in parts:
                yield from steps_of(part)
        case Literal():
            return
        case _:
            assert_never(expression)


def is_true(expression: Expression, steps: Mapping[str, StepFacts]) -> bool:
    """True if the expression holds for these steps; a field alone holds if it is true."""
    match expression:
        case Literal() | StepField():
            return _value(expression, steps) is True
        case Comparison(left, sign, right):
            return _compare(_value(left, steps), sign, _value(right, steps))
        case Negation(part):
            return not is_true(part, steps)
        case AllOf(parts):
            return all(is_true(part, steps) for part in parts)
        case AnyOf(parts):
            return any(is_true(part, steps) for part in parts)
        case _:
            assert_never(expression)


def _value(operand: Literal | StepField, steps: Mapping[str, StepFacts]) -> JsonValue:
    if isinstance(operand, Literal):
        return operand.value
    facts = steps.get(operand.step)
    if facts is None:
        return None
    if operand.is_status:
        return facts.status
    value = facts.result
    for part in operand.path:
        match value, part:
            case dict(), str():
                value = value.get(part)
            case list(), int() if part < len(value):
                value = value[part]
            case _:
                return None
    return value


def _compare(left: JsonValue, sign: str, right: JsonValue) -> bool:
    """Equality of JSON values; only two numbers, or two texts, are ordered."""
    if sign in ("==", "!="):
        is_equal = isinstance(left, bool) is isinstance(right, bool) and left == right
        return is_equal is (sign == "==")
    if isinstance(left, bool) or isinstance(right, bool):
        return False
    match left, right:
        case (int() | float(), int() | float()) | (str(), str()):
            is_less, is_more = left < right, left > right  # type: ignore[operator]  # two numbers or two texts
        case _:
            return False
    return {"<": is_less, "<=": not is_more, ">": is_more, ">=": not is_less}[sign]


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


_TOKEN = re.compile(
    rf"""\s*(?:
    (?P<field>(?:\$output\.{STEP}|step-[0-9]{{3,6}}(?![0-9])|{STEP}(?=[.\[])){PATH})
    |(?P<number>-?[0-9]{{1,18}}(?:\.[0-9]{{1,18}})?(?![\w.]))
    |(?P<text>"(?:[^"\\]|\\.)*"|'[^']*')
    |(?P<sign>==|!=|<=|>=|<|>)
    |(?P<bracket>[()])
    |(?P<word>[A-Za-z_]\w*)
    |(?P<other>\S)
    )""",
    re.VERBOSE | re.DOTALL,
)
_WORDS: Mapping[str, JsonValue] = {"true": True, "false": False, "null": None}
_OPERAND = "a step's field (step-001.status, step-001.result.KEY), a text, a number, true, false or null"


def _tokens(text: str) -> Iterator[_Token]:
    for found in _TOKEN.finditer(text):
        kind = found.lastgroup
        if kind is not None:
            yield _Token(kind, found[kind], found.start(kind) + 1)


class _Reader:
    def __init__(self, text: str) -> None:
        self._tokens: Sequence[_Token] = [*_tokens(text)]
        self._next = 0
        self._end = len(text) + 1

    def peek(self) -> _Token | None:
        return self._tokens[self._next] if self._next < len(self._tokens) else None

    def _take(self, kind: str, *texts: str) -> _Token | None:
        token = self.peek()
        if token is None or token.kind != kind or (texts and token.text not in texts):
            return None
        self._next += 1
        return token

    def any_of(self, depth: int) -> Expression:
        parts = [self._all_of(depth)]
        while self._take("word", "or"):
            parts.append(self._all_of(depth))
        return parts[0] if len(parts) == 1 else AnyOf(tuple(parts))

    def _all_of(self, depth: int) -> Expression:
        parts = [self._negated(depth)]
        while self._take("word", "and"):
            parts.append(self._negated(depth))
        return parts[0] if len(parts) == 1 else AllOf(tuple(parts))

    def _negated(self, depth: int) -> Expression:
        token = self._take("word", "not") or self._take("bracket", "(")
        if token is None:
            return self._comparison()
        if depth == 0:
            raise NotAnExpression(
                token.at, f"at most {MOST_DEPTH} parentheses and 'not' within each other are read"
            )
        if token.kind == "word":
            return Negation(self._negated(depth - 1))
        inner = self.any_of(depth - 1)
        if not self._take("bracket", ")"):
            raise self._unexpected(f"')' for the '(' at character {token.at} is expected")
        return inner

    def _comparison(self) -> Expression:
        left = self._operand()
        sign = self._take("sign")
        return left if sign is None else Comparison(left, sign.text, self._operand())

    def _operand(self) -> Literal | StepField:
        if token := self._take("field"):
            return _field(token)
        if token := self._take("number"):
            return Literal(float(token.text) if "." in token.text else int(token.text))
        if token := self._take("text"):
            return Literal(_text(token))
        if token := self._take("word", *_WORDS):
            return Literal(_WORDS[token.text])
        raise self._unexpected(f"{_OPERAND} is expected")

    def _unexpected(self, expected: str) -> NotAnExpression:
        token = self.peek()
        if token is None:
            return NotAnExpression(self._end, f"{expected}; the text ends here")
        return NotAnExpression(token.at, f"{expected}, not {_shown(token)}")


def _field(token: _Token) -> StepField:
    is_output = token.text.startswith("$output.")
    step, path = _split(token.text.removeprefix("$output."))
    if is_output:
        return StepField(step, is_status=False, path=path)
    if path == ("status",):
        return StepField(step, is_status=True)
    if path[:1] == ("result",):
        return StepField(step, is_status=False, path=path[1:])
    raise NotAnExpression(
        token.at, f"a step has a status and a result ({step}.status, {step}.result.KEY), not {token.text!r}"
    )


def _split(text: str) -> tuple[str, Place]:
    end = next((at for at, char in enumerate(text) if char in ".["), len(text))
    return text[:end], path_of(text[end:])


def _text(token: _Token) -> str:
    if token.text.startswith("'"):
        return token.text[1:-1]
    try:
        return str(json.loads(token.text))
    except ValueError:
        raise NotAnExpression(token.at, "a text in double quotes is written as in JSON") from None


def _shown(token: _Token) -> str:
    return repr(shortened(token.text, 30))
