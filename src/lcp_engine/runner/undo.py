"""Take changes back: check every file under its lock, then decide all or none, then carry it out (R20)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from pydantic import JsonValue

from lcp_engine.changes.recovery import UNDO, close_left_open, open_root
from lcp_engine.engine.instance import Site
from lcp_engine.engine.undo_plan import (
    Restoration,
    Wish,
    check_quiet,
    find_wish,
    open_undo,
    record,
    refusal,
    restorations,
)
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.runner.runner import Runner
from lcp_engine.sandbox.atomic_write import Digest, LockedFile
from lcp_engine.sandbox.file_access import ConfinedThreads, confined_threads
from lcp_engine.sandbox.locks import Held, Wait
from lcp_engine.sandbox.root import Root
from lcp_engine.store.changes import keep
from lcp_engine.store.db.json_text import JsonObject
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.ledger import ledger_of
from lcp_engine.store.queries.archive import missing_blobs
from lcp_engine.store.queries.history import find_job

_TRIES = 10


@dataclass(frozen=True)
class Undo:
    """What an undo came to. `job_id` is its job: None for a dry run, and where nothing is to be undone.

    `resumed`: the job of an earlier undo that had been interrupted, and was finished first.
    """

    mission_id: int
    job_id: int | None
    files: tuple[JsonObject, ...]
    dry_run: bool = False
    resumed: int | None = None

    @property
    def json(self) -> JsonObject:
        files: list[JsonValue] = [*self.files]
        return {
            "mission_id": self.mission_id,
            "job_id": self.job_id,
            "files": files,
            "dry_run": self.dry_run,
            "resumed": self.resumed,
        }


def undo(
    site: Site, *, mission_id: int | None = None, job_id: int | None = None, dry_run: bool = False, by: str
) -> Undo:
    """Bring files back to what they were before a mission, or before one job.

    An earlier undo of the mission that was interrupted is finished first. Raises `NOT_FOUND`; `WRONG_STATE` while jobs
    of the mission are queued or running; `CONFLICT` where a file is not what the last change left, or was changed by a
    job that is no part of this: then nothing has happened. Raises what the undo failed with where a file was changed,
    or the file system refused, after all were checked: that says which files are not restored.
    """
    wish = site.database.read(lambda tx: find_wish(tx, mission_id, job_id))
    resumed = site.database.write(lambda tx: open_undo(ledger_of(tx), wish.mission_id))
    if resumed is not None and not dry_run:
        _carry_out(site, wish.mission_id)
    site.database.write(lambda tx: check_quiet(ledger_of(tx), wish))
    close_left_open(site.database, confined_threads(site.isolation))
    for _ in range(_TRIES):
        wanted = site.database.read(lambda tx: restorations(tx, wish))
        if not wanted:
            return Undo(wish.mission_id, None, (), dry_run=dry_run, resumed=resumed)
        files = tuple(one.json for one in wanted)
        decided = _decide(site, wish, wanted, dry_run=dry_run, by=by)
        if decided is not None:
            break
    else:
        raise LcpError(ErrorCode.WRONG_STATE, f"{wish.name} went on changing {_TRIES} times meanwhile")
    if dry_run:
        return Undo(wish.mission_id, None, files, dry_run=True, resumed=resumed)
    _carry_out(site, wish.mission_id)
    _check_done(site, decided)
    return Undo(wish.mission_id, decided, files, resumed=resumed)


def _decide(site: Site, wish: Wish, wanted: Sequence[Restoration], *, dry_run: bool, by: str) -> int | None:
    """Under the locks of all files: check them, and write the intents. The job's id, 0 for a dry run.

    None where the history of the files went on before they were locked. Raises `CONFLICT`.
    """
    with _locked(wanted, confined_threads(site.isolation)) as found:
        again = site.database.read(lambda tx: restorations(tx, wish))
        if list(again) != list(wanted):
            return None
        modes = _check(wish, wanted, found)
        if dry_run:
            return 0
        for one, held in zip(wanted, found, strict=True):
            _keep(site, wish, one, held)
        hashes = [one.sha256_now for one in wanted if one.sha256_now is not None]

        def work(tx: Tx) -> int | None:
            # A prune may have found that nobody refers to them yet.
            is_gone = bool(missing_blobs(tx, hashes, keeps=True))
            return None if is_gone else record(ledger_of(tx), wish, wanted, modes, by=by)

        return site.database.write(work)


@contextmanager
def _locked(wanted: Sequence[Restoration], threads: ConfinedThreads) -> Iterator[list[Held]]:
    """The files of `wanted`, all locked; for one whose root cannot be opened, the reason."""
    roots: dict[str, Root] = {}
    refused: dict[str, LcpError] = {}
    with ExitStack() as stack:
        for path in {one.root for one in wanted}:
            try:
                roots[path] = stack.enter_context(open_root(path))
            except LcpError as error:
                refused[path] = error
        files = stack.enter_context(threads.access(*roots.values(), writes=True))
        paths = {one.file: (roots[one.root], one.path) for one in wanted if one.root in roots}
        locked = stack.enter_context(files.lock([*paths.values()], Wait.ALL))
        found = dict(zip(paths, locked.found, strict=True))
        yield [refused[one.root] if one.root in refused else found[one.file] for one in wanted]


def _check(wish: Wish, wanted: Sequence[Restoration], found: Sequence[Held]) -> Mapping[str, int]:
    """The mode bits of the files that are there. Raises `CONFLICT` that names each file that is not as it was left."""
    modes: dict[str, int] = {}
    faults: dict[str, str] = {}
    for one, held in zip(wanted, found, strict=True):
        try:
            digest = _digest(held)
        except LcpError as error:
            faults[one.path] = error.failed.message
            continue
        if digest is not None:
            modes[one.file] = digest.mode
        if (None if digest is None else digest.sha256) != one.sha256_now:
            faults[one.path] = f"{one.path!r} {_difference(one, is_there=digest is not None)}"
    if faults:
        raise refusal(wish, [*faults.values()], [*faults])
    return modes


def _digest(held: Held) -> Digest | None:
    """The digest of the file; None if there is none."""
    if isinstance(held, LockedFile):
        return held.digest()
    if held is None or held.code is ErrorCode.PATH_NOT_FOUND:
        return None
    raise held


def _difference(one: Restoration, *, is_there: bool) -> str:
    if not is_there:
        return "should be there as the last change left it; it is gone"
    if one.sha256_now is None:
        return "should be gone as the last change left it; it is there"
    return "has to be as the last change left it; somebody has changed it since"


def _keep(site: Site, wish: Wish, one: Restoration, held: Held) -> None:
    """Keep the content that is about to go, so that the undo can be undone."""
    if one.sha256_now is None or not isinstance(held, LockedFile):
        return
    current, sha = held.read(None), one.sha256_now
    if current is None or current.sha256 != sha:  # who takes no locks may write at any time
        raise refusal(wish, [f"{one.path!r} {_difference(one, is_there=current is not None)}"], [one.path])
    data = current.data
    site.database.write(lambda tx: keep(tx, sha, data))


def _carry_out(site: Site, mission_id: int) -> None:
    """Execute the undo here: as a runner that takes nothing else."""
    Runner(site, mission_id=mission_id, kinds=(UNDO.kind,), until_idle=True).run()


def _check_done(site: Site, job_id: int) -> None:
    """Raises the error of an undo that failed."""
    error = site.database.read(lambda tx: find_job(tx, job_id))["error"]
    if isinstance(error, dict):
        raise LcpError(ErrorCode(str(error["error_code"])), str(error["user_message"]))
