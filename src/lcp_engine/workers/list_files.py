"""The kind `list_files`: list the files of a directory tree."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, JsonValue

from lcp_engine.core.kinds import KindRole
from lcp_engine.core.paths.patterns import compile_patterns
from lcp_engine.core.policy import Judge, Verdict
from lcp_engine.core.reasons import ReasonCode
from lcp_engine.errors import ErrorCode, Failed, LcpError, system_advice
from lcp_engine.sandbox.reading.list_tree import Filters, list_files
from lcp_engine.workers.base import Context, Example, Hold, Worker
from lcp_engine.workers.params import Params, PathText, PatternText, Result


class ListFilesParams(Params):
    """Patterns are gitignore-style and relative to `root`; excludes (`!`) win whatever their place."""

    root: PathText | None = Field(
        default=None, description="The mission's root, an alias of it, or a directory in it."
    )
    patterns: list[PatternText] | None = Field(default=None, description='Such as "**/*.py", "!**/dist/**".')
    limit: int | None = Field(default=None, ge=0, description="How many paths to list at most.")
    details: bool | None = Field(default=None, description="Whether to tell the size of each file.")


class ListFilesResult(Result):
    """`files` are relative to `root`, in order of their bytes; `total` counts all that match where some were left out.

    `skipped` names directories that could not be read, and files whose names are not UTF-8.
    """

    action: Literal["list_files_result"] = "list_files_result"
    files: list[str]
    root: str
    patterns: list[str]
    sizes: list[int] | None = Field(default=None, exclude_if=lambda value: value is None)
    truncated: bool = Field(default=False, exclude_if=lambda value: not value)
    total: int | None = Field(default=None, exclude_if=lambda value: value is None)
    skipped: list[str] = Field(default=[], exclude_if=lambda value: not value)

    def whole(self) -> dict[str, JsonValue]:
        return {**super().whole(), "total": len(self.files) if self.total is None else self.total}


def execute(params: ListFilesParams, context: Context) -> ListFilesResult | Hold | Failed:
    """Lists regular files; never follows links or enters `.git` and the engine's own directory."""
    try:
        patterns = compile_patterns(params.patterns or ())
        place = context.names.place(root=params.root)
        base = place.path
        if (refused := context.judge(base and f"{base}/")) is not None:
            return refused
        context.root.check_place(place)
        cap = context.caps.listed_paths
        limit = cap if params.limit is None else min(params.limit, cap)
        listing = list_files(
            context.root, base, patterns, limit=limit, sizes=bool(params.details), filters=filters_of(context)
        )
    except LcpError as error:
        return error.failed
    except OSError as error:
        where = params.root or "."
        return Failed(
            ErrorCode.FILE_SYSTEM,
            f"{where!r}: {error.strerror or error}",
            {"errno": error.errno},
            system_advice(error),
        )
    left_out = listing.total > len(listing.files)
    return ListFilesResult(
        files=listing.files,
        root=params.root or ".",
        patterns=params.patterns or [],
        sizes=listing.sizes,
        truncated=left_out,
        total=listing.total if left_out else None,
        skipped=listing.skipped,
    )


def filters_of(context: Context) -> Filters:
    """What a listing leaves out: directories that the default denies, and all that a rule denies."""
    judge = context.policy

    def is_closed(directory: str) -> bool:
        ruling = judge(directory)
        return ruling.verdict is Verdict.DENY and ruling.reason.code is not ReasonCode.RULE

    def is_hidden(path: str) -> bool:
        ruling = judge(path)
        return ruling.verdict is Verdict.DENY and ruling.reason.code is ReasonCode.RULE

    needs_no_look = isinstance(judge, Judge) and not judge.has_denying_rules
    return Filters(is_closed, None if needs_no_look else is_hidden)


def _requested_paths(params: ListFilesParams) -> tuple[str, ...]:
    return () if params.root is None else (params.root,)


WORKER = Worker(
    kind="list_files",
    params=ListFilesParams,
    result=ListFilesResult,
    execute=execute,
    description="List the files that match gitignore-style patterns.",
    has_effects=False,
    paths=_requested_paths,
    role=KindRole.LISTS,
    shows="files",
    examples=(
        Example(
            params={"root": ".", "patterns": ["**/*.py", "!**/dist/**"]},
            result={"files": ["src/main.py"]},
            files={"src/main.py": "", "dist/old.py": "", "README.md": ""},
        ),
    ),
    confined="lcp_engine.workers.list_files:WORKER",
)
