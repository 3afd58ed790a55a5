"""Say what holds for commands: to a planner before one runs, and of one that failed for the wall's reasons. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from posixpath import basename
from typing import Literal, TypeAlias

from lcp_engine.core.programs.walls import Step

Changes: TypeAlias = Literal["drop", "hold", "stage"]
"""The end of files that a command changes: they are dropped, held for a person, or become part of the stage."""


def said_of_commands(changes: Changes, network: Sequence[str] | Literal["host"] = ()) -> str:
    """Sentences for a planner about the commands of its mission; `network` are the hosts that they may reach."""
    return f"{_OF_CHANGES[changes]} {_of_network(network)}"


_OF_CHANGES = {
    "drop": "Files that it changes are named in `changed` and not kept: change files with jobs of other kinds.",
    "hold": "Files that it changes are kept once a person approves them; until then later commands do not see them.",
    "stage": "Files that it changes are kept, except where a rule denies it (`left_out`).",
}


def _of_network(network: Sequence[str] | Literal["host"]) -> str:
    if network == "host":
        return "It uses the network of this machine."
    if network:
        return f"It reaches {', '.join(network)} and no other host."
    return "It has no network but its own 127.0.0.1: nothing can be downloaded or installed."


def named_as_walls(
    stdout: str,
    stderr: str,
    exit_code: int | None,
    *,
    step: Step = Step.OVERLAY,
    masked: Sequence[str] = (),
    network: bool = False,
) -> tuple[str, ...]:
    """Causes of a failure behind a wall that are the wall's and not the program's, one sentence for each.

    Of a success only that it traced nothing, with which debuggers may end, or listed no sockets. `masked` are paths of
    files that commands do not see; with `network` it has one, so that no failure of it is the wall's.
    """
    lines = [line[:_LONGEST] for line in f"{stdout}\n{stderr}".split("\n")]
    text = "\n".join(lines)
    found = [_sentence(match[0], _NOT_TRACED)] if (match := _TRACED.search(text)) else []
    if not network and step is not Step.LANDLOCK and _NO_ENTRIES.search(text):
        found.append(_perhaps("no sockets are listed", _OWN_SOCKETS))
    if exit_code == 0:
        return (*found,)
    text = _TRACED.sub("", text)
    found += [
        _sentence(match[0], why)
        for pattern, why in _causes(step, network=network)
        if (match := pattern.search(text))
    ]
    if (missing := _interpreter(text, exit_code)) is not None:
        found.append(_perhaps(missing, _ELSEWHERE))
    if step is Step.LANDLOCK and (module := _NO_MODULE.search(text)):
        found.append(
            _perhaps(module[0], "editable installs and links lead to the root, and this is a copy elsewhere")
        )
    return (*found, *_read_only(lines), *_masked_names(lines, masked))


_LONGEST = 500
"""Characters of a line that are looked at."""


def _sentence(words: str, why: str) -> str:
    return f"{' '.join(words.split())}: the wall's, not the program's: {why} (docs/commands.md)"


def _perhaps(words: str, why: str) -> str:
    return f"{' '.join(words.split())}: perhaps the wall's: {why} (docs/commands.md)"


_NO_NETWORK = "commands have no network here"
_OF_NETWORK = (
    (
        re.compile(
            "(?i:network is unreachable|no route to host)|ENETUNREACH|EHOSTUNREACH|Temporary failure in name resolution"
            "|Temporary failure resolving|EAI_AGAIN|Name or service not known|getaddrinfo ENOTFOUND"
            "|[Cc]ould not resolve host|no such host|UnknownHostException"
        ),
        _NO_NETWORK,
    ),
    (
        re.compile("[Cc]onnection refused|ECONNREFUSED|Couldn't connect to server"),
        "127.0.0.1 is the command's own, and a server that runs outside is not there",
    ),
)
_RENAMED = (
    re.compile("(?i:invalid cross-device link)|EXDEV"),
    "directories of the root cannot be renamed by a command; mv and a job move_file move them",
)
_EPERM = re.compile("(?i:operation not permitted)|EPERM")
_TOO_LARGE = (re.compile("(?i:file size limit exceeded|file too large)|EFBIG"), "a file has at most 256 MiB")
_OWNED = (_EPERM, "ownership of others, devices, mounts, tracing and limits cannot be changed")
_TRACED = re.compile(
    r"LeakSanitizer has encountered a fatal error|^[^\n]*\b(?:ptrace|PTRACE_)[^\n]{0,80}: Operation not permitted",
    re.MULTILINE,
)
_NOT_TRACED = (
    "no program can be traced, as debuggers, strace and searches for leaks do; for these, ASAN_OPTIONS=detect_leaks=0 "
    "does without"
)
_NO_ENTRIES = re.compile(r"^[^\n]*\bRecv-Q +Send-Q +Local Address\b[^\n]*$(?!\n\S)", re.MULTILINE)
"""The head of what ss and netstat list, with nothing below it."""
_OWN_SOCKETS = "commands have a network of their own, and see no sockets of programs outside"
_NO_MODULES = (
    re.compile(r"not a git repository: [^\n]*\.git/modules/"),
    "repositories of submodules are not there for commands",
)
_NO_LFS = (
    re.compile(
        r"^(?:objects: openError: [^\n]* could not be checked|[^\n]*/tmp/git-lfs/[^\n]*)", re.MULTILINE
    ),
    "objects of LFS are not there for commands",
)
_REFRESHED = (re.compile("Failed to run `git update-index`"), ".git can only be read; a person commits")
_NO_GIT = (re.compile("not a git repository"), "commands run on a copy of the root without .git")
_NO_SOCKETS = (
    _EPERM,
    "there is no network, not even 127.0.0.1, and ownership, devices, mounts and limits stay as they are",
)


def _causes(step: Step, *, network: bool) -> tuple[tuple[re.Pattern[str], str], ...]:
    """Words of a failure with the reason for it behind a wall."""
    of_root = (_RENAMED, _NO_MODULES, _NO_LFS, _REFRESHED) if step is Step.OVERLAY else (_NO_GIT,)
    if network:
        return (*of_root, _OWNED, _TOO_LARGE)
    return (*_OF_NETWORK, *of_root, _NO_SOCKETS if step is Step.LANDLOCK else _OWNED, _TOO_LARGE)


_NO_MODULE = re.compile(r"ModuleNotFoundError: [^\n]*|Cannot find (?:module|package) '(?!\.)[^\n]*")
_READ_ONLY = re.compile("(?i:read-only file system)|EROFS")
_OF_GIT = re.compile(r"\.git\b")


def _read_only(lines: Sequence[str]) -> list[str]:
    """The first refused write in `.git`, and the first elsewhere."""
    refused = [line for line in lines if _READ_ONLY.search(line)]
    of_git = next((line for line in refused if _OF_GIT.search(line)), None)
    others = next((line for line in refused if not _OF_GIT.search(line)), None)
    told = (
        (of_git, ".git can only be read; a person commits"),
        (others, "only the mission's files and /tmp are written"),
    )
    return [_sentence(line, why) for line, why in told if line is not None]


_OF_INTERPRETERS = re.compile(
    r"bad interpreter[^\n]{0,120}|cannot execute: required file not found|env: [^\n]{1,80}: No such file or directory"
    r"|(?:spawn|execve?)[^\n]{1,80}ENOENT|exec: [^\n]{1,80}: executable file not found in \$PATH"
)
_NO_PROGRAM = re.compile(r"(?:^|: )([^\s:]+): (?:command )?not found$", re.MULTILINE)
_CANNOT_RUN = re.compile(r"^[^\n]*: Permission denied$", re.MULTILINE)
_ELSEWHERE = "the operator opens a program that is installed where commands do not see it (commands_read)"


def _interpreter(text: str, exit_code: int | None) -> str | None:
    """A program or interpreter that was not found, or may not be executed."""
    found = _OF_INTERPRETERS.search(text)
    if found is None and exit_code == 127:
        found = _NO_PROGRAM.search(text)
    if found is None and exit_code == 126:
        found = _CANNOT_RUN.search(text)
    # The shell of an ordinary machine says the same of a program that is installed nowhere.
    return found and found[0].removeprefix(": ")


_MOST_NAMED = 5
_MOST_LINES = 200
_ABSENT = re.compile(
    "(?i:no such file|not ?found|does not exist|invalid path|error loading"
    "|(?:cannot|can't|could not|couldn't|unable to|failed to) (?:access|find|load|open|read))|ENOENT"
)
_WITHOUT_NAME = re.compile(r"\bFileNotFoundError: \[Errno 2\] No such file or directory$")
_OF_TLS = (".crt", ".key", ".p12", ".pem", ".pfx")


def _masked_names(lines: Sequence[str], masked: Sequence[str]) -> list[str]:
    """A sentence for each masked file that a line says is not there."""
    names = {basename(path.rstrip("/")): path for path in masked}
    found: dict[str, None] = {}
    absent = [line for line in lines if _ABSENT.search(line)] if names else []
    for line in absent[:_MOST_LINES]:
        found |= dict.fromkeys(path for name, path in names.items() if _is_named(name, line))
    why = "commands do not see this file, which is secret or denied"
    if not found and any(_WITHOUT_NAME.search(line) for line in absent):  # Python's ssl names no file
        return [_perhaps(path, why) for path in masked if path.endswith(_OF_TLS)][:_MOST_NAMED]
    return [_sentence(path, why) for path in [*found][:_MOST_NAMED]]


def _is_named(name: str, line: str) -> bool:
    """True if a line has the name of a file, and not as a part of another one."""
    at = line.find(name)
    while at >= 0:
        before, after = line[at - 1 : at] if at else "", line[at + len(name) : at + len(name) + 1]
        if not (before.isalnum() or before in {"_", "-"}) and not (after.isalnum() or after in {"_", "-"}):
            return True
        at = line.find(name, at + 1)
    return False
