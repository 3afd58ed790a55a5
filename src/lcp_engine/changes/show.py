"""Show what a job would change, and what jobs and missions have changed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial

from lcp_engine.changes.own_kinds import own_kind
from lcp_engine.changes.preview import Previews
from lcp_engine.changes.recovery import MOVE, is_directory
from lcp_engine.changes.unified_diff import Contents, Diff, diff_bytes
from lcp_engine.core.job_states import State
from lcp_engine.core.mission.spec import spec_of
from lcp_engine.core.paths.change_history import DiskState
from lcp_engine.core.policy import Policy, Verdict
from lcp_engine.engine.instance import Instance
from lcp_engine.errors import GENERAL, ErrorCode, LcpError
from lcp_engine.sandbox.file_access import confined_threads
from lcp_engine.sandbox.new_content import compose
from lcp_engine.sandbox.root_identity import KnownRoot, number_places, open_known
from lcp_engine.sandbox.written_files import Written, on_disk
from lcp_engine.store import changes
from lcp_engine.store.changes import sha256
from lcp_engine.store.db.json_text import JsonObject, from_json
from lcp_engine.store.db.open import is_read_only
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.people import Sight, see
from lcp_engine.store.queries import history
from lcp_engine.store.queries.held_jobs import met
from lcp_engine.store.queries.mission_spec import root_of_change, spec_and_root
from lcp_engine.store.row_types import ChangeRow
from lcp_engine.workers.read_file import WORKER as READ_FILE

_BEFORE_IS_GONE = "what it was before is not in the database"
_AFTER_IS_GONE = "it has been changed since, and what this wrote was not kept"


class Forecast(StrEnum):
    """Facts that can be told beforehand about a job."""

    DIFF = "diff"
    """Its diff is all that it changes."""
    NOTHING = "nothing"
    """Its kind changes nothing."""
    UNKNOWN = "unknown"
    """Its kind may change something and has no preview: only its params can be shown."""


@dataclass(frozen=True)
class Look:
    """A held job as it is shown to a person: what it would change, and what an approval of that is bound to."""

    forecast: Forecast
    diff: Diff | None
    sight: Sight
    files: tuple[Diff, ...] = ()
    """The parts of `diff` file by file, of a job that changes several at once."""
    has_choice: bool = False
    """True if a person can take some of the files, or of their hunks, and leave the others out."""

    @property
    def diffs(self) -> list[Diff]:
        """One for each file."""
        return [*self.files] or ([] if self.diff is None else [self.diff])

    @property
    def is_whole(self) -> bool:
        """True if the diff, if there is one, says everything that changes."""
        return self.diff is None or self.diff.is_whole

    @property
    def caveat(self) -> str:
        """Notes for a person who sees no diff; empty if there is nothing to say."""
        if self.forecast is Forecast.UNKNOWN:
            return "what it would change cannot be told beforehand: its kind may change something and has no preview"
        return "" if self.is_whole else "what it would change is too large to be shown in full"


@dataclass(frozen=True)
class FileNow:
    """A file that a mission has changed, the jobs that did, and whether it is as they left it (`on_disk`)."""

    diff: Diff
    jobs: tuple[int, ...]
    disk: DiskState | None


def show_job(instance: Instance, job_id: int, person: str) -> list[Diff]:
    """Diffs of what a held job would change now, noted as seen by `person`; or what any other job has changed.

    Nothing is noted in a database that is read-only. Empty for a job that changes no file, or of a kind without
    previews. Raises `NOT_FOUND`.
    """
    job = instance.database.read(lambda tx: history.find_job(tx, job_id))
    if job["state"] != State.HELD:
        made = instance.database.read(lambda tx: changes.changes_of(tx, job_id))
        return _applied(instance, [change for change in reversed(made) if change.state == "applied"])
    look = look_over(instance, [job])[job_id]
    if not is_read_only(instance.database):
        instance.database.write(lambda tx: see(tx, job_id, person, look.sight))
    return look.diffs


def look_over(instance: Instance, jobs: Iterable[JsonObject]) -> dict[int, Look]:
    """Look at what jobs would change now, by their ids. Notes nothing: the caller keeps the sight for the approval."""
    looks: dict[int, Look] = {}
    with Previews(instance) as previews:
        for job in jobs:
            looks[int(str(job["id"]))] = _look(instance, previews, job, _parts(job)[2])
    return looks


def look_at_params(instance: Instance, job: JsonObject, params: JsonObject) -> Look:
    """Look at what a held job would change now with other params."""
    with Previews(instance) as previews:
        return _look(instance, previews, job, params)


def _look(instance: Instance, previews: Previews, job: JsonObject, params: JsonObject) -> Look:
    mission_id, kind, _ = _parts(job)
    preview, sight = previews.with_sight(mission_id, kind, params)
    worker, own = instance.admission.workers.get(kind), own_kind(kind)
    if preview is not None:
        forecast = Forecast.DIFF
    else:
        forecast = Forecast.NOTHING if worker is not None and not worker.has_effects else Forecast.UNKNOWN
    return Look(
        forecast,
        None if preview is None else preview.diff,
        replace(sight, job_id=int(str(job["id"]))),
        preview.view.diffs if preview is not None and preview.view is not None else (),
        has_choice=own is not None and own.text is not None,
    )


def show_mission(instance: Instance, mission_id: int) -> list[Diff]:
    """Diffs of what a mission has changed: each file from its first content to its last. Raises `NOT_FOUND`."""
    instance.database.read(lambda tx: history.find_mission(tx, mission_id))
    return _applied(instance, instance.database.read(lambda tx: changes.applied_changes(tx, mission_id)))


def show_files(instance: Instance, mission_id: int, *, first: int, most: int) -> tuple[list[FileNow], int]:
    """Like `show_mission`, with the state on disk: `most` files after the `first` ones, and the number of all.

    Raises `NOT_FOUND`.
    """
    instance.database.read(lambda tx: history.find_mission(tx, mission_id))
    made = instance.database.read(lambda tx: changes.applied_changes(tx, mission_id))
    files, moved = [*_by_file(made).values()], _moved(made)
    shown = files[first : first + most]
    found = _found(instance, [of_file[-1] for of_file in shown])
    return [
        FileNow(
            _difference(instance, of_file[0], of_file[-1], moved),
            tuple(change.job_id for change in of_file),
            found.get(of_file[-1].id),
        )
        for of_file in shown
    ], len(files)


def sight_now(instance: Instance, job_id: int, params: JsonObject | None) -> Sight:
    """Sight of what a job, with other params if given, would change now.

    Raises `NOT_FOUND`, `ROOT_CHANGED`, and for a choice of a merge `INVALID_PARAMS`, `CONFLICT` and `TOO_LARGE`.
    """
    job = instance.database.read(lambda tx: history.find_job(tx, job_id))
    mission_id, kind, stated = _parts(job)
    with Previews(instance) as previews:
        preview, sight = previews.with_sight(mission_id, kind, stated if params is None else params)
    refused = None if preview is None else preview.refused
    is_choice = preview is not None and preview.view is not None and job["state"] == State.HELD
    if refused is not None and (is_choice or refused.code is ErrorCode.ROOT_CHANGED):
        raise LcpError.of(refused)
    return sight


def text_to_edit(instance: Instance, job_id: int, path: str, params: JsonObject | None) -> str:
    """The text that a held job of the engine's own kind, with other params if given, would give a file.

    Raises `NOT_FOUND`, `WRONG_STATE`, and what `OwnKind.text` raises.
    """
    job = instance.database.read(lambda tx: history.find_job(tx, job_id))
    mission_id, kind, stated = _parts(job)
    own = own_kind(kind)
    if own is None or own.text is None or job["state"] != State.HELD:
        message = f"job {job_id} is a {kind} that is {job['state']}; only files of a held merge can be edited"
        raise LcpError(ErrorCode.WRONG_STATE, message, advice=GENERAL)
    return own.text(instance, mission_id, path, stated if params is None else params)


def contents_of(instance: Instance, job_id: int, path: str) -> Contents:
    """Contents that the diff of a file compares, of a held job or of one that has changed it.

    `path` is that of one of its diffs. Raises `NOT_FOUND` for any other one, and for a content that is gone;
    `PATH_DENIED` if jobs of the mission may not read the file; and what `OwnKind.compared` raises.
    """
    job = instance.database.read(lambda tx: history.find_job(tx, job_id))
    mission_id, kind, params = _parts(job)
    _check_readable(instance, mission_id, path)
    found: Contents | None = None
    if job["state"] != State.HELD:
        made = instance.database.read(lambda tx: changes.changes_of(tx, job_id))
        applied = [change for change in reversed(made) if change.state == "applied"]
        moved = _moved(applied)
        of_path = (of_file for of_file in _by_file(applied).values() if of_file[-1].path == path)
        if of_file := next(of_path, None):
            found = _contents(instance, of_file[-1], *_ends(of_file[0], of_file[-1], moved)[:2])
    elif own := own_kind(kind):
        found = own.compared(instance, mission_id, path, params)
    else:
        with Previews(instance) as previews:
            preview = previews.of(mission_id, kind, params)
        if preview is not None and preview.path == path and preview.refused is None and not preview.unread:
            found = Contents(preview.before, preview.after)
    if found is None:
        message = f"job {job_id} has no content of {path!r} to show: it is not one of its files, or is gone"
        raise LcpError(ErrorCode.NOT_FOUND, message, advice=GENERAL)
    return found


def _check_readable(instance: Instance, mission_id: int, path: str) -> None:
    def policy_now(tx: Tx) -> Policy:
        spec_text, root = spec_and_root(tx, mission_id)
        return instance.admission.policy_now(tx, mission_id, spec_of(spec_text), root)

    policy = instance.database.read(policy_now)
    ruling = policy.for_kind(READ_FILE.named, has_effects=False, writes=False)(path)
    if ruling.verdict is Verdict.DENY:
        message = f"{path!r} is not shown beyond its diff: {ruling.reason}"
        raise LcpError(ErrorCode.PATH_DENIED, message, advice=GENERAL)


def note_first_sight(instance: Instance, jobs: Iterable[JsonObject], person: str) -> None:
    """Note that `person` has seen these held jobs in a list, if no earlier sight is noted.

    A list shows no file, so it never replaces a diff that a person saw.
    """
    held = [job for job in jobs if job["state"] == State.HELD]
    known = instance.database.read(lambda tx: met(tx, [int(str(job["id"])) for job in held], person))
    new = [job for job in held if job["id"] not in known]
    if not new or is_read_only(instance.database):
        return
    with Previews(instance) as previews:
        sights = [(int(str(job["id"])), previews.with_sight(*_parts(job))[1]) for job in new]

    def keep(tx: Tx) -> None:
        for job_id, sight in sights:
            see(tx, job_id, person, sight)

    instance.database.write(keep)


def _parts(job: JsonObject) -> tuple[int, str, JsonObject]:
    params = job["params"]
    return int(str(job["mission_id"])), str(job["kind"]), params if isinstance(params, dict) else {}


def _applied(instance: Instance, made: Sequence[ChangeRow]) -> list[Diff]:
    """Each file from before its first change to after its last, in the order of their first changes."""
    moved = _moved(made)
    return [_difference(instance, of_file[0], of_file[-1], moved) for of_file in _by_file(made).values()]


def _found(instance: Instance, last: Sequence[ChangeRow]) -> dict[int, DiskState | None]:
    """The state of files since their last change, by its id; a removed file is as written if there is none."""
    found: dict[int, DiskState | None] = {}
    by_root: dict[tuple[int, str, str | None], dict[str, ChangeRow]] = defaultdict(dict)
    for change in last:
        by_root[change.mission_id, change.root, change.root_identity][change.path] = change
    for (mission_id, root, place), of_root in by_root.items():
        known = instance.database.read(partial(root_of_change, mission_id=mission_id, path=root, place=place))
        written = [Written(path, change.size_bytes, change.sha256_after) for path, change in of_root.items()]
        for path, state in on_disk(written, known, confined_threads(instance.isolation).read).items():
            found[of_root[path].id] = state
    return found


def _by_file(made: Sequence[ChangeRow]) -> dict[str, list[ChangeRow]]:
    by_file: dict[str, list[ChangeRow]] = {}
    places = number_places(change.root_identity for change in made)
    for change in made:
        by_file.setdefault(f"{places[change.root_identity]}:{change.file}", []).append(change)
    return by_file


def _moved(made: Iterable[ChangeRow]) -> dict[int, str]:
    """The other path of each change that moved a file, by its id."""
    moves: dict[tuple[int, int], list[ChangeRow]] = defaultdict(list)
    for change in made:
        if change.mode == MOVE:
            moves[change.job_id, change.attempt].append(change)
    pairs = [pair for pair in moves.values() if len(pair) == 2]
    return {one.id: other.path for pair in pairs for one, other in (pair, pair[::-1])}


def _difference(instance: Instance, first: ChangeRow, last: ChangeRow, moved: Mapping[int, str]) -> Diff:
    """The change of a file; of one that was moved, what else was changed of it, with the other path in words."""
    old, new, note = _ends(first, last, moved)
    if note and old == new:
        return Diff(last.path, note=f"{note}, as it was")
    found = _contents(instance, last, old, new)
    if found is None:
        is_before = old is not None and _kept(instance, old) is None
        diff = Diff(last.path, note=_BEFORE_IS_GONE if is_before else _AFTER_IS_GONE)
    else:
        diff = diff_bytes(last.path, found.before, found.after)
    return replace(diff, note="; ".join(filter(None, [note, diff.note])) or None)


def _ends(first: ChangeRow, last: ChangeRow, moved: Mapping[int, str]) -> tuple[str | None, str | None, str]:
    """The hashes of a file before and after its changes, and where it was moved from or to, in words."""
    new, old = last.sha256_after, first.sha256_before
    if last.id in moved and new is None:
        return old, last.sha256_before, f"moved to {moved[last.id]!r}"
    if first.id in moved and first.sha256_after is not None and new is not None:
        return first.sha256_after, new, f"moved from {moved[first.id]!r}"
    return old, new, ""


def _contents(instance: Instance, last: ChangeRow, old: str | None, new: str | None) -> Contents | None:
    """The contents with these hashes, None for no file; None if one of them is gone."""
    if is_directory(last):
        return Contents(None if old is None else b"", None if new is None else b"")
    before = None if old is None else _kept(instance, old)
    after = None if new is None or (old and before is None) else _after(instance, last, new)
    return None if (old and before is None) or (new and after is None) else Contents(before, after)


def show_restored(instance: Instance, root: KnownRoot, path: str, now: str | None, then: str | None) -> Diff:
    """Diff of restoring a file, by the hashes of its contents; None where there is no file."""
    contents: list[bytes | None] = []
    for sha in (now, then):
        content = None if sha is None else b"" if path.endswith("/") else _kept(instance, sha)
        if sha is not None and content is None:
            content = _on_disk(instance, root, path)
            if content is None or sha256(content) != sha:
                return Diff(path, note=_AFTER_IS_GONE if sha == now else _BEFORE_IS_GONE, is_whole=False)
        contents.append(content)
    return diff_bytes(path, *contents)


def _kept(instance: Instance, sha: str) -> bytes | None:
    return instance.database.read(lambda tx: changes.content(tx, sha))


def _after(instance: Instance, change: ChangeRow, sha: str) -> bytes | None:
    """Content that a change wrote: what a later one replaced, what the file has, or what its job would write again."""
    kept = _kept(instance, sha)
    if kept is not None:
        return kept
    known = instance.database.read(
        lambda tx: root_of_change(tx, change.mission_id, change.root, change.root_identity)
    )
    for content in (_on_disk(instance, known, change.path), _composed(instance, change)):
        if content is not None and sha256(content) == sha:
            return content
    return None


def _on_disk(instance: Instance, known: KnownRoot, path: str) -> bytes | None:
    try:
        with open_known(known) as root, confined_threads(instance.isolation).access(root) as files:
            current = files.read_unlocked(root, path, None)
    except LcpError:
        return None
    return None if current is None else current.data


def _composed(instance: Instance, change: ChangeRow) -> bytes | None:
    """The content from the job's params; the caller compares its hash."""
    params = from_json(instance.database.read(lambda tx: changes.params_of(tx, change.job_id)))
    text = next((params[key] for key in ("content", "new_content") if params.get(key) is not None), None)
    before = None if change.sha256_before is None else _kept(instance, change.sha256_before)
    encoding = params.get("encoding") or ""
    is_known = change.mode in ("overwrite", "append")
    if not (is_known and isinstance(text, str) and isinstance(encoding, str)):
        return None
    try:
        return compose(before, text, "append" if change.mode == "append" else "overwrite", encoding)
    except LcpError:
        return None
