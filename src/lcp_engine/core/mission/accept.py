"""The conditions that a mission has to meet for `mission_complete` to count. Pure.

On its own, since each process for file kinds loads it and nothing else of the mission file.
"""

from __future__ import annotations

import re
import shlex
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, model_validator

from lcp_engine.core.paths.patterns import compile_patterns
from lcp_engine.errors import LcpError, UnexpectedValue


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, allow_inf_nan=False)


def _is_confined(path: str) -> str:
    if not path.strip() or "\0" in path or path.startswith(("/", "\\")) or ".." in re.split(r"[/\\]", path):
        raise UnexpectedValue("should be a path beneath the root, relative to it")
    return path


def _is_pattern(pattern: str) -> str:
    import re2  # type: ignore[import-untyped]  # ships no types

    quiet = re2.Options()
    quiet.log_errors = False
    try:
        re2.compile(pattern, quiet)
    except re2.error as refused:
        reason = refused.args[0].decode(errors="replace") if refused.args else ""
        raise UnexpectedValue(f"should be a regular expression (RE2): {reason}") from None
    return pattern


ConfinedPath = Annotated[str, AfterValidator(_is_confined)]
Pattern = Annotated[str, AfterValidator(_is_pattern)]


class FileMatch(Frozen):
    """A file, and a regular expression (RE2) that matches somewhere in it."""

    path: ConfinedPath = Field(description="The file.")
    pattern: Pattern = Field(description="A regular expression (RE2).")


def _is_file_pattern(pattern: str) -> str:
    try:
        compile_patterns([pattern])
    except LcpError as refused:
        raise UnexpectedValue(f"should be a gitignore-style pattern: {refused}") from None
    return pattern


class FileQuotes(Frozen):
    """A file that quotes every line of `files` in which `pattern` (RE2) is found, and makes none up."""

    path: ConfinedPath = Field(description="The file that quotes.")
    pattern: Annotated[str, AfterValidator(_is_pattern)] = Field(
        description="What a line to be quoted contains (RE2)."
    )
    files: Annotated[str, AfterValidator(_is_file_pattern)] = Field(
        default="*", description="The files whose lines are quoted, as a gitignore-style pattern."
    )


def words_of(value: JsonValue) -> JsonValue:
    """A text as the words that a shell would make of it, without expanding anything; other values as they are."""
    try:
        return [*shlex.split(value)] if isinstance(value, str) else value
    except ValueError as refused:
        raise UnexpectedValue(f"should be words as in a shell: {refused}") from None


_Parts = tuple[Annotated[str, Field(max_length=10_000)], ...]
CommandParts = Annotated[
    _Parts,
    BeforeValidator(words_of, json_schema_input_type=_Parts | str),
    Field(min_length=1, max_length=1000),
]


class AcceptCheck(Frozen):
    """One condition for `mission_complete` to count; exactly one of the fields is set.

    `verify` is a question that the planner answers in a separate turn once all other checks pass.
    """

    file_exists: ConfinedPath | None = Field(default=None, description="This file exists.")
    file_matches: FileMatch | None = Field(default=None, description="An expression is found in a file.")
    file_parses: ConfinedPath | None = Field(
        default=None, description="This file (`.json`, `.toml`, `.yaml`, `.py`) has no syntax error."
    )
    file_quotes: FileQuotes | None = Field(
        default=None,
        description="A file quotes every line of others in which an expression is found, and no other.",
    )
    command: CommandParts | None = Field(
        default=None,
        description="This program, with its arguments, ends with exit code 0 (commands.md).",
    )
    claims: Literal["issues", "deliverables"] | None = Field(
        default=None,
        description="What the reply claims is so: each of its `issues` names a file that was read, or each of its "
        "`deliverables` is a file (missions.md).",
    )
    verify: Annotated[str, Field(min_length=1, max_length=2000, pattern=r"\S")] | None = Field(
        default=None, description="A question that the planner answers with yes, in a turn of its own."
    )

    @model_validator(mode="after")
    def _states_one_check(self) -> AcceptCheck:
        stated = (
            self.file_exists,
            self.file_matches,
            self.file_parses,
            self.file_quotes,
            self.command,
            self.claims,
            self.verify,
        )
        if stated.count(None) != len(stated) - 1:
            names = "file_exists, file_matches, file_parses, file_quotes, command, claims, verify"
            raise UnexpectedValue(f"should state exactly one of {names}")
        return self

    @property
    def path(self) -> str | None:
        """The file that is checked; None if a command is run, the reply itself is checked, or the planner verifies."""
        within = self.file_matches or self.file_quotes
        return within.path if within else self.file_exists or self.file_parses

    @property
    def description(self) -> str:
        """The condition as a sentence."""
        if self.verify:
            return f"the planner verifies: {self.verify}"
        if self.claims:
            return f"the {self.claims} of the reply are right"
        if self.command:
            return f"{shlex.join(self.command)} ends with exit code 0"
        if self.file_quotes:
            return f"the file {self.path} quotes each line of {self.file_quotes.files} with {self.file_quotes.pattern}"
        if self.file_matches:
            return f"the file {self.path} matches {self.file_matches.pattern}"
        return f"the file {self.path} {'exists' if self.file_exists else 'parses'}"
