"""Make one commit of what a mission changed, once: it is found again by its trailer before it is made again."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from lcp_engine.changes.own_kinds import LeasedJob, OwnKind
from lcp_engine.changes.set_view import SetView
from lcp_engine.core.decide import End
from lcp_engine.core.json_values import object_in
from lcp_engine.core.kinds import TURN
from lcp_engine.core.mission.spec import spec_of
from lcp_engine.engine.instance import Instance
from lcp_engine.engine.outcome import Succeeded
from lcp_engine.engine.points import Observer
from lcp_engine.engine.progress import refresh
from lcp_engine.errors import Failed, LcpError
from lcp_engine.features.git.repository import Call, Git, refused, repository
from lcp_engine.features.git.rules import (
    APPROVED_BY,
    KIND,
    OF_MISSION,
    UNDOES,
    CommitParams,
    CommitResult,
    GitKeys,
    branch_name,
    message_of,
)
from lcp_engine.sandbox.entries import read_unlocked
from lcp_engine.store.changes import applied_changes, content
from lcp_engine.store.db.json_text import JsonObject, from_json, to_json
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.ledger import Ledger, NewJobRow
from lcp_engine.store.queries.history import find_events, find_jobs, find_mission
from lcp_engine.store.row_types import JobRow, MissionRow
from lcp_engine.workers.base import Hold

_LOOKED_AT = 1000
"""Commits among which that of a mission is looked for."""
ATTEMPTS = 3


def request_commit(ledger: Ledger, mission: MissionRow, end: End, error: str | None) -> None:
    """Queue the commit of a mission that completes, if it states one."""
    spec = spec_of(mission.spec)
    use = GitKeys.of(spec).git
    if use.commit == "off" or mission.root is None or not end.succeeded:
        return
    branch = None if use.branch is None else branch_name(use.branch, spec.name, mission.id)
    params: dict[str, JsonValue] = {"branch": branch, "summary": end.message or ""}
    ledger.create(
        mission,
        NewJobRow(
            plan_id=mission.root_plan, turn=mission.turns or None, name="the repository", kind=KIND,
            params=to_json({key: one for key, one in params.items() if one}), max_attempts=ATTEMPTS,
        ),
    )  # fmt: skip


def request_revert(ledger: Ledger, undo: JobRow) -> None:
    """Queue the revert of the last commit of a mission that is undone as a whole, unless it was requested before."""
    jobs = find_jobs(ledger.tx, mission_id=undo.mission_id, kinds=[KIND])
    reverted = {object_in(job["params"]).get("reverts") for job in jobs}
    made = [job["id"] for job in jobs if not object_in(job["params"]).get("reverts")]
    commits = [one for job, one in _commits(jobs).items() if job in made and one not in reverted]
    if "mission" not in from_json(undo.params) or not commits:
        return
    mission = ledger.mission(undo.mission_id)
    ledger.create(
        mission,
        NewJobRow(
            plan_id=mission.root_plan, name="the revert", kind=KIND, params=to_json({"reverts": commits[-1]}),
            max_attempts=ATTEMPTS,
        ),
    )  # fmt: skip
    refresh(ledger, mission)


def _commits(jobs: Sequence[JsonObject]) -> dict[JsonValue, str]:
    """Commits that jobs of this kind have made, by the job."""
    found = (
        (job["id"], object_in(job["result"]).get("commit")) for job in jobs if job["state"] == "succeeded"
    )
    return {job: str(one) for job, one in found if one}


OBSERVER = Observer(ended=request_commit, undone=request_revert, kinds=(KIND,))


@dataclass(frozen=True)
class _Made:
    """A path that a mission changed: hashes of its file before and after, None where there was or is none."""

    before: str | None
    after: str | None
    between: frozenset[str | None] = frozenset()
    """Hashes of it that earlier commits of the mission may have."""


@dataclass(frozen=True)
class _Facts:
    """Words and files of a commit."""

    uid: str
    message: str
    made: Mapping[str, _Made]
    trailer: str = OF_MISSION
    reverts: str = ""
    """The commit that it takes back."""
    earlier: Collection[str] = ()
    """Commits that other jobs of the mission have made."""


def execute_commit(leased: LeasedJob) -> Succeeded | Failed | Hold:
    """Commit what the mission of a job changed, if that has not been done."""
    params = CommitParams.model_validate(from_json(leased.row.params))
    try:
        facts = leased.instance.read(_facts, leased.row.mission_id, params)
        with leased.open_root() as root, repository(leased.instance, root) as git:
            result = _Commit(leased.instance, git, params.branch, facts).make()
    except LcpError as error:
        return error.failed
    return Succeeded(to_json(result.model_dump(mode="json")))


def _facts(tx: Tx, mission_id: int, params: CommitParams) -> _Facts:
    mission, made = find_mission(tx, mission_id), dict[str, _Made]()
    earlier = _commits(find_jobs(tx, mission_id=mission_id, kinds=[KIND])).values()
    for change in applied_changes(tx, mission_id):
        if not change.path.endswith("/") and not (params.reverts and change.undoes):
            first = made.get(change.path) or _Made(change.sha256_before, None)
            between = first.between | {change.sha256_after} if earlier else first.between
            made[change.path] = _Made(first.before, change.sha256_after, between)
    kept = {path: one for path, one in made.items() if earlier or one.before != one.after}
    uid, name = str(mission["uid"]), str(mission["name"])
    if params.reverts:
        message = f"Undo mission {mission_id}, {' '.join(name.split())}\n\nThis reverts commit {params.reverts}.\n\n"
        back = {path: _Made(one.after, one.before, one.between) for path, one in kept.items()}
        return _Facts(uid, f"{message}{UNDOES}: {uid}\n", back, UNDOES, params.reverts, earlier)
    decided = [object_in(event["data"]) for event in find_events(tx, mission_id, event="decided")]
    by = dict.fromkeys(str(one["by"]) for one in decided if one.get("decision") == "approve")
    jobs = [
        " ".join(filter(None, (str(job["kind"]), str(job["name"] or _path(job["params"])))))
        for job in find_jobs(tx, mission_id=mission_id, states=["succeeded"], kinds=[])
        if job["kind"] not in (KIND, TURN)
    ]
    trailers = [(OF_MISSION, uid), *((APPROVED_BY, one) for one in by)]
    return _Facts(uid, message_of(name, mission_id, params.summary, jobs, trailers), kept, earlier=earlier)


def _path(params: JsonValue) -> str:
    given = object_in(params)
    found = given.get("rel_path") or given.get("path")
    return found if isinstance(found, str) else ""


class _Commit:
    """One attempt to make a commit. Each step is found done if an attempt before it has done it."""

    def __init__(self, instance: Instance, git: Git, branch: str | None, facts: _Facts) -> None:
        self._instance, self._git, self._facts = instance, git, facts
        self._wanted = "" if branch is None else f"refs/heads/{branch}"
        self._paths = sorted(facts.made)
        self._branch = self._current = ""

    def make(self) -> CommitResult:
        git, wanted = self._git, self._wanted
        git.check_ready()
        form = f"--format=%H %P %(trailers:key={self._facts.trailer},valueonly,separator=%x2C)"
        there, bare, named, valid, at_head, tree_now, at_branch, log = git.ask(
            Call(("rev-parse", "--git-dir")),
            Call(("config", "--get", "--type=bool", "core.bare")),
            Call(("symbolic-ref", "-q", "HEAD")),
            Call(("check-ref-format", wanted or "refs/heads/any")),
            Call(("rev-parse", "-q", "--verify", "HEAD^{commit}")),
            Call(("rev-parse", "-q", "--verify", "HEAD^{tree}")),
            Call(("rev-parse", "-q", "--verify", f"{wanted or 'HEAD'}^{{commit}}")),
            Call(("log", f"-{_LOOKED_AT}", form, wanted or "HEAD", "--")),
        )
        if there.code != 0:
            raise refused(f"git cannot use the repository: {there.why}")
        if bare.line == "true":
            raise refused("the repository is bare")
        if valid.code != 0:
            raise refused(f"{wanted.removeprefix('refs/heads/')!r} is no name of a branch")
        current, head, tip = named.line, at_head.line, at_branch.line
        branch = self._branch = wanted or current
        self._current = current
        if not branch:
            raise refused("HEAD is detached, and the mission states no branch")
        fields = (line.split(" ") for line in log.line.splitlines())
        earlier = self._facts.earlier
        known = next((one for one in fields if one[-1] == self._facts.uid and one[0] not in earlier), None)
        if known is not None:
            return self._finish(known[0], known[1] if len(known) > 2 else "", head)
        if (
            self._facts.reverts
            and git.ask(Call(("merge-base", "--is-ancestor", self._facts.reverts, "HEAD")))[0].code
        ):
            raise refused(f"commit {self._facts.reverts[:12]} is not on the current branch")
        if wanted and wanted != current and tip:
            raise refused(f"the branch {branch.removeprefix('refs/heads/')!r} exists")
        taken, ignored, author = self._examine(head)
        tree = self._tree(head, taken)
        if not taken or tree == tree_now.line:
            return CommitResult(summary="nothing to commit", left_out=ignored)
        parents = ("-p", head) if head else ()
        given = self._facts.message.encode(errors="replace")
        [made] = git.do(Call((*author, "commit-tree", tree, *parents, "-F", "-"), given))
        made = made.strip()
        git.do(Call(("update-ref", "-m", f"commit: {self._facts.uid}", branch, made, tip or "0" * len(made))))
        return self._finish(made, head, made if branch == current else head, ignored)

    def _examine(self, head: str) -> tuple[list[str], list[str], tuple[str, ...]]:
        """The paths to commit, those that git ignores, and who commits. Raises `WRONG_STATE` for what cannot be."""
        given = b"".join(os.fsencode(f"./{path}") + b"\0" for path in self._paths)
        clean, ignored, attributes, entries, name, address = self._git.ask(
            Call(
                ("diff-index", "--cached", "--quiet", head, "--")
                if head
                else ("ls-files", "--error-unmatch", "*")
            ),
            Call(("check-ignore", "-z", "--stdin"), given),
            Call(("check-attr", "-z", "--stdin", "filter"), given),
            Call(("ls-tree", "-r", "-z", head) if head else ("version",)),
            Call(("config", "--get", "user.name"), author=True),
            Call(("config", "--get", "user.email"), author=True),
        )
        if (clean.code == 0) is not bool(head):
            raise refused("changes are staged in its index", "Commit or unstage them, then `lcp retry JOB`.")
        if ignored.code > 1 or attributes.code or entries.code:
            raise refused(f"git cannot read the repository: {ignored.why or attributes.why or entries.why}")
        if not (name.line and address.line):
            raise refused(
                "git knows no user.name and user.email", "Set them (`git config`), then `lcp retry JOB`."
            )
        left_out = [one[2:] for one in ignored.out.split("\0") if one]
        taken = [path for path in self._paths if path not in set(left_out)]
        fields = attributes.out.split("\0")
        filters = {path[2:]: value for path, value in zip(fields[::3], fields[2::3], strict=False)}
        known = _entries(entries.out) if head else {}
        for path in taken:
            self._check(path, filters.get(path, ""), known)
        return taken, left_out, ("-c", f"user.name={name.line}", "-c", f"user.email={address.line}")

    def _check(self, path: str, filter_name: str, known: Mapping[str, str]) -> None:
        """Raise `WRONG_STATE` for a file that is not to be committed as it is."""
        made, fact = self._facts.made[path], ""
        now = read_unlocked(self._git.root, path, 0)
        if filter_name not in ("", "unspecified", "unset", "set"):
            fact = f"{path!r} is for the filter {filter_name}, and filters are not run"
        elif (None if now is None else now.sha256) != made.after:
            fact = f"{path!r} was changed after the mission"
        elif not any(self._was_committed(one, known.get(path, "")) for one in (made.before, *made.between)):
            fact = f"{path!r} had changes that were not committed before the mission"
        if fact:
            raise refused(fact, "Look at the file, and commit it yourself.")

    def _was_committed(self, before: str | None, known: str) -> bool:
        """True if what a mission replaced was what the commit has, with line ends of either kind."""
        if before is None or not known:
            return before is None and not known
        data = self._instance.read(content, before)
        if data is None:
            return True  # too large to be kept
        make = hashlib.sha1 if len(known) == _SHA1 else hashlib.sha256
        forms = (data, data.replace(b"\r\n", b"\n"), data.replace(b"\n", b"\r\n"))
        return any(make(b"blob %d\0" % len(one) + one).hexdigest() == known for one in forms)

    def _tree(self, head: str, paths: Sequence[str]) -> str:
        """A tree of a commit with these files as they are, made in an index of its own."""
        (self._git.place / "index").unlink(missing_ok=True)
        given = b"".join(os.fsencode(path) + b"\0" for path in paths)
        *_, tree = self._git.do(
            Call(("read-tree", head or "--empty"), index=True),
            Call(("update-index", "--add", "--remove", "-z", "--stdin"), given, index=True),
            Call(("write-tree",), index=True),
        )
        return tree.strip()

    def _finish(self, made: str, parent: str, head: str, ignored: Sequence[str] = ()) -> CommitResult:
        """Be on the branch, with its files in the index, where an earlier attempt may have stopped."""
        git, branch, calls = self._git, self._branch, list[Call]()
        if self._wanted and self._current != branch and head == parent:
            calls.append(Call(("symbolic-ref", "-m", f"switch to {branch}", "HEAD", branch)))
            head = made
        [clean] = git.ask(
            Call(("diff-index", "--cached", "--quiet", parent, "--") if parent else ("ls-files",))
        )
        if head == made and clean.code == 0 and (parent or not clean.line):
            calls.append(Call(("read-tree", "-i", "-m", parent, made) if parent else ("read-tree", made)))
        listed = Call(("diff-tree", "-r", "--root", "--no-commit-id", "--name-only", "-z", made))
        files = git.do(*calls, listed)[-1].split("\0")
        short = branch.removeprefix("refs/heads/")
        return CommitResult(
            summary=f"commit {made[:12]} on {short}", commit=made, branch=short, files=[one for one in files if one],
            left_out=[*ignored],
        )  # fmt: skip


def _entries(listed: str) -> dict[str, str]:
    """The object of each path in a listing of a tree."""
    found = (entry.partition("\t") for entry in listed.split("\0") if entry)
    return {path: about.split(" ")[2] for about, _, path in found}


_SHA1 = 40


def _view(instance: Instance, mission_id: int, params: Mapping[str, JsonValue]) -> SetView:
    return SetView((), "", None, ".git", ("", ""), "a commit changes no file")


def _compared(instance: Instance, mission_id: int, path: str, params: Mapping[str, JsonValue]) -> None:
    """Nothing: a commit changes no file."""


CARRIED_OUT = OwnKind(execute=execute_commit, view=_view, path=".git", compared=_compared)
