"""Run git in the repository of a root, behind the wall of commands, with no setting of it that runs programs.

The program sees the root read only, but for its `.git`; it has no network, no home, and no setting of its user.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from lcp_engine.core.programs.walls import Step
from lcp_engine.engine.instance import Instance
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.features.programs.programs import ProgramsUnderWay, run_program
from lcp_engine.features.programs.settings import ProgramSettings
from lcp_engine.features.programs.wall.programs import Bounds, Ended, Program
from lcp_engine.features.programs.wall.steps import Found, step_here, trial_place
from lcp_engine.features.programs.wall.views.view import Bind, View
from lcp_engine.features.programs.wall.workspace import owner_of
from lcp_engine.sandbox.root import Root

_PATH = "/usr/local/bin:/usr/bin:/bin"
_SECONDS = 300.0
"""The most that git may take, and another commit be waited for."""
_REST_SECONDS = 0.05
_OFF = {
    "core.hooksPath": "/dev/null", "core.fsmonitor": "false", "core.pager": "cat", "core.editor": "false",
    "core.sshCommand": "false", "core.alternateRefsCommand": "false", "core.attributesFile": "/dev/null",
    "gpg.program": "false", "gpg.ssh.program": "false", "gpg.x509.program": "false", "commit.gpgSign": "false",
    "protocol.allow": "never", "gc.auto": "0", "maintenance.auto": "false", "safe.directory": "*",
    "log.showSignature": "false", "submodule.recurse": "false", "i18n.commitEncoding": "utf-8",
    "advice.graftFileDeprecated": "false", "trailer.separators": ":",
}  # fmt: skip
"""Settings that come before those of the repository: no hook, filter, monitor, signer or helper of it is run."""
_UNDER_WAY = {
    "rebase-merge": "a rebase is under way", "rebase-apply": "a rebase is under way",
    "MERGE_HEAD": "a merge is under way", "CHERRY_PICK_HEAD": "a cherry-pick is under way",
    "REVERT_HEAD": "a revert is under way",
    "BISECT_LOG": "a bisection is under way",
}  # fmt: skip


_LOCKS = ("index.lock", "HEAD.lock", "packed-refs.lock")


def refused(fact: str, advice: str = "Mend that, then run the job again (`lcp retry JOB`).") -> LcpError:
    """The error of a commit that cannot be made. The files are what the mission left."""
    return LcpError(ErrorCode.WRONG_STATE, f"nothing was committed: {fact}", advice=advice)


@dataclass(frozen=True)
class Call:
    """A call of git: `given` is its stdin; `index`: it has one of its own, `author`: the settings of this user."""

    arguments: tuple[str, ...]
    given: bytes = b""
    index: bool = False
    author: bool = False

    @property
    def command(self) -> str:
        """The command of git, for people."""
        return next(one for one in self.arguments if not one.startswith("-") and "=" not in one)


@dataclass(frozen=True)
class Answer:
    """Exit code and output of a call of git, and the last line of its errors."""

    code: int
    out: str
    why: str

    @property
    def line(self) -> str:
        """Its output; nothing if it failed."""
        return self.out.strip() if self.code == 0 else ""


@dataclass(frozen=True)
class Git:
    """The program git in the repository of a root. `place` is a directory for what it is given and writes."""

    root: Root
    place: Path
    program: str
    found: Found
    user: tuple[int, int] | None

    def ask(self, *calls: Call) -> list[Answer]:
        """Answers to calls, one after the other, in one process behind the wall, whatever they come to."""
        ended = self._run(calls, "")
        answers = [self._answer(number) for number in range(len(calls))]
        if None in answers:
            raise refused(
                ended.stopped
                or f"git ended with {ended.exit_code} ({ended.stderr[-200:].decode(errors='replace')})"
            )
        return [one for one in answers if one is not None]

    def do(self, *calls: Call) -> list[str]:
        """Outputs of calls, one after the other. Raises `WRONG_STATE` with the last line of the first that fails."""
        ended, done = self._run(calls, " || exit 1"), list[str]()
        for number, call in enumerate(calls):
            answer = self._answer(number)
            if answer is None or answer.code != 0:
                why = (
                    ended.stopped or "it was ended"
                    if answer is None
                    else answer.why or f"exit code {answer.code}"
                )
                raise refused(f"git {call.command}: {why}")
            done.append(answer.out)
        return done

    def _run(self, calls: Sequence[Call], otherwise: str) -> Ended:
        git, home, place = f"{self.root.path}/.git", Path.home(), str(self.place)
        files = [
            str(one) for one in (home / ".gitconfig", home / ".config" / "git" / "config") if one.is_file()
        ]
        common = [
            self.program,
            *(option for key, value in _OFF.items() for option in ("-c", f"{key}={value}")),
        ]
        lines = [f"cd {shlex.quote(self.root.path)}"]
        for number, call in enumerate(calls):
            (self.place / f"given-{number}").write_bytes(call.given)
            (self.place / f"code-{number}").unlink(missing_ok=True)
            settings = {"GIT_INDEX_FILE": f"{place}/index"} if call.index else {}
            settings |= {"GIT_CONFIG_GLOBAL": files[0]} if call.author and files else {}
            words = [*(f"{key}={one}" for key, one in settings.items()), *common, *call.arguments]
            ends = " ".join(f"{sign}{shlex.quote(f'{place}/{name}-{number}')}" for sign, name in _ENDS)
            code = shlex.quote(f"{place}/code-{number}")
            lines.append(
                f"env {shlex.join(words)} {ends}; code=$?; echo $code > {code}; [ $code = 0 ]{otherwise}"
            )
        script = self.place / "script"
        script.write_text("\n".join([*lines, "exit 0\n"]), errors="surrogateescape")
        environment = {
            "PATH": _PATH, "LC_ALL": "C", "HOME": "/nonexistent", "GIT_DIR": git, "GIT_WORK_TREE": self.root.path,
            "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_NO_LAZY_FETCH": "1",
            "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "GIT_NO_REPLACE_OBJECTS": "1",
        }  # fmt: skip
        binds = [Bind(self.root.path, self.root.path), Bind(git, git, writable=True, is_link_refused=True)]
        binds += [Bind(place, place, writable=True), *(Bind(one, one) for one in files)]
        in_namespaces = self.found.step is not Step.LANDLOCK
        program = Program(
            path="/bin/sh",
            arguments=["sh", str(script)],
            directory=self.root.path,
            environment=environment,
            owned=() if in_namespaces else (git, place),
            readable=() if in_namespaces else (self.root.path, *files),
            bounds=Bounds(seconds=_SECONDS, written=2**62),
            view=View(binds=binds, user=self.user) if in_namespaces else None,
            tool=self.found.tool,
        )
        return run_program(self.root, program, (0, 1), ProgramsUnderWay())

    def _answer(self, number: int) -> Answer | None:
        """The answer to a call; None if it has not ended."""
        with suppress(FileNotFoundError, ValueError):
            code = int((self.place / f"code-{number}").read_text())
            out, err = ((self.place / f"{name}-{number}").read_bytes() for name in ("out", "err"))
            said = err.decode(errors="replace").strip().splitlines()
            return Answer(code, out.decode(errors="surrogateescape"), said[-1] if said else "")
        return None

    def check_ready(self) -> None:
        """Raise `WRONG_STATE` for a repository in which something else is under way."""
        found = (why for name, why in _UNDER_WAY.items() if os.path.lexists(f"{self.root.path}/.git/{name}"))
        if (why := next(found, None)) is not None:
            raise refused(why)
        locked = next((name for name in _LOCKS if os.path.lexists(f"{self.root.path}/.git/{name}")), None)
        if locked is not None:  # for a moment, or left over
            message = f"nothing was committed: another git has locked the repository (.git/{locked})"
            advice = "Remove the file if no git runs, then run the job again (`lcp retry JOB`)."
            raise LcpError(ErrorCode.FILE_SYSTEM, message, advice=advice)


_ENDS = (("<", "given"), (">", "out"), ("2>", "err"))


@contextmanager
def repository(instance: Instance, root: Root) -> Iterator[Git]:
    """Open the repository of a root. Raises `WRONG_STATE` if it has none of its own, `NOT_ISOLATED` without a wall."""
    try:
        own = root.open_directory(".git")
    except OSError:
        fact = f"{root.path!r} has no directory .git of its own"
        raise refused(fact, "Use the top of a repository as the root; `git init` makes one.") from None
    try:
        _wait_for(own)
        with _opened(instance, root) as git:
            yield git
    finally:
        os.close(own)


def _wait_for(own: int) -> None:
    """Wait for commits of other missions. Raises `FILE_SYSTEM` if whoever has the lock keeps it."""
    until = time.monotonic() + _SECONDS
    while True:
        with suppress(BlockingIOError):
            return fcntl.flock(own, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if time.monotonic() > until:
            message = f"nothing was committed: another program has kept .git locked for {_SECONDS:g} s"
            raise LcpError(ErrorCode.FILE_SYSTEM, message, advice="End it, then `lcp retry JOB`.")
        time.sleep(_REST_SECONDS)


@contextmanager
def _opened(instance: Instance, root: Root) -> Iterator[Git]:
    program = shutil.which("git", path=_PATH)
    if program is None:
        raise refused("git is not installed", "Install git, then run the job again.")
    if instance.walls is None:
        raise refused("this engine runs no commands")
    user = owner_of(root)
    walls = instance.settings(ProgramSettings).walls(instance.isolation)
    found = step_here(instance.walls, None, user, walls=walls)
    if found.step is Step.NONE:
        message = f"git cannot be confined: {'; '.join(found.reasons)}"
        raise LcpError(ErrorCode.NOT_ISOLATED, message, advice=found.advice or None)
    with trial_place(instance.walls) as place:
        if user is not None:
            os.chown(place, *user)
        yield Git(root, place, program, found, user)
