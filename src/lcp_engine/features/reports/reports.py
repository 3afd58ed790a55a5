"""Read what a report says about a mission, with what has become of its files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lcp_engine.features.reports.facts import Course, Facts
from lcp_engine.features.reports.markdown import as_markdown, disk_note, error_lines, make_report
from lcp_engine.features.reports.store.progress import find_course
from lcp_engine.features.reports.store.report import MOST, find_facts
from lcp_engine.sandbox.file_access import confined_threads
from lcp_engine.sandbox.root_identity import KnownRoot
from lcp_engine.sandbox.system.landlock import Isolation
from lcp_engine.sandbox.written_files import ReadBeneath, Written, on_disk
from lcp_engine.store.db.database import Database
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.queries.mission_spec import changed_root

__all__ = [
    "as_markdown",
    "disk_note",
    "error_lines",
    "make_report",
    "read_facts",
    "read_standing",
]


def read_facts(
    database: Database, isolation: Isolation, mission_id: int, most: int | None, most_counted: int | None
) -> Facts:
    """The facts of a mission, with what has become of each file. Raises `NOT_FOUND`."""
    facts, known = database.read(
        lambda tx: (
            find_facts(tx, mission_id, most=most or MOST, most_counted=most_counted),
            changed_root(tx, mission_id),
        )
    )
    return _compared(facts, known, confined_threads(isolation).read)


def read_standing(
    database: Database,
    isolation: Isolation,
    mission_id: int,
    *,
    since: int | None,
    most: int | None,
    acting: Sequence[str],
) -> tuple[Facts, Course]:
    """Facts and progress of one moment, with every held job. Raises `NOT_FOUND`."""

    def find(tx: Tx) -> tuple[Facts, Course, KnownRoot | None]:
        facts = find_facts(tx, mission_id, most=most or MOST, most_held=MOST, acting=acting)
        return facts, find_course(tx, mission_id, since), changed_root(tx, mission_id)

    facts, course, known = database.read(find)
    return _compared(facts, known, confined_threads(isolation).read), course


def _compared(facts: Facts, known: KnownRoot | None, read_beneath: ReadBeneath) -> Facts:
    """The facts, with the `disk` state of each of `files` beneath the mission's root."""
    files = facts.files.rows
    if known is None or not files:
        return facts
    written = [Written(file.path, file.size_bytes, file.sha256) for file in files]
    states = on_disk(written, known, read_beneath)
    rows = [replace(file, disk=states.get(file.path)) for file in files]
    return replace(facts, files=replace(facts.files, rows=rows))
