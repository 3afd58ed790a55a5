"""The kind `move_file`: move a file, or rename it."""

from __future__ import annotations

from functools import partial
from typing import Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from lcp_engine.core.kinds import KindRole
from lcp_engine.errors import ErrorCode, Failed
from lcp_engine.sandbox.paths import Names, Place
from lcp_engine.workers.base import Applied, Context, Example, FileEffect, Hold, Worker
from lcp_engine.workers.params import FileParams, PathText, Result, requested_paths

_MEANT = frozenset(
    {"to", "dest", "dst", "destination", "target", "target_path", "to_path", "new_name", "rename_to"}
)
"""What planners call `new_path`, and no comparison of letters would find."""


class MoveFileParams(FileParams):
    """Moves one file; its new directory is made, and a file that is there is not replaced."""

    new_path: PathText = Field(
        description="Where it goes, its new name included: absolute or relative to root."
    )

    @model_validator(mode="before")
    @classmethod
    def _names_the_new_path(cls, given: object) -> object:
        if isinstance(given, dict) and "new_path" not in given:
            for key in given:
                if str(key).casefold() in _MEANT:
                    raise PydanticCustomError(
                        "no_new_path", "new_path is missing; did you mean it by {key}?", {"key": key}
                    )
        return given

    @model_validator(mode="after")
    def _moves_somewhere(self) -> MoveFileParams:
        if self.new_path in (self.rel_path, self.path):
            raise PydanticCustomError(
                "no_move", "new_path is where the file is already; nothing would change"
            )
        return self

    def new_place(self, names: Names) -> Place:
        """Where the file goes. Raises `LcpError`."""
        return names.place(root=self.root, path=self.new_path)


class MoveFileResult(Result):
    """`path` is where the file was, `new_path` where it is; its content is the same, and so are its mode bits.

    Hash and size are null for a file that may not be read without a person.
    """

    action: Literal["move_file_result"] = "move_file_result"
    path: str
    new_path: str
    size_bytes: int | None
    sha256: str | None


def execute(params: MoveFileParams, context: Context) -> FileEffect | Hold | Failed:
    """Checks both paths without opening a file, and returns the change for the runner to apply."""
    old, new = (context.to_change(place) for place in (params.place, params.new_place))
    if not isinstance(old, Place):
        return old
    if not isinstance(new, Place):
        return new
    if old.path == new.path:
        return Failed(ErrorCode.INVALID_PARAMS, f"{old.shown!r} is there already: new_path is the same file")
    return FileEffect(new.path, "", "move", partial(_result, old.shown, new.shown), source=old.path)


def _paths(params: MoveFileParams) -> tuple[str, ...]:
    """Both paths; one that is relative is beneath `root`."""
    is_beneath = params.root is not None and not params.new_path.startswith("/")
    return (*requested_paths(params), f"{params.root}/{params.new_path}" if is_beneath else params.new_path)


def _result(shown: str, new: str, applied: Applied) -> MoveFileResult:
    size = applied.size_bytes if applied.is_told else None
    return MoveFileResult(path=shown, new_path=new, size_bytes=size, sha256=applied.sha256_after)


WORKER = Worker(
    kind="move_file",
    params=MoveFileParams,
    result=MoveFileResult,
    execute=execute,
    description="Move or rename a file.",
    writes=True,
    role=KindRole.MOVES,
    paths=_paths,
    preview=execute,
    reads_files=False,
    examples=(
        Example(
            params={"root": ".", "rel_path": "notes.txt", "new_path": "docs/notes.md"},
            result={"path": "notes.txt", "new_path": "docs/notes.md", "size_bytes": 6},
            files={"notes.txt": "notes\n"},
        ),
    ),
    denied_with=("read_file",),
    restricted_as=("delete_file",),
    confined="lcp_engine.workers.move_file:WORKER",
)
