"""Read what a report says about a mission, with what has become of its files."""

from __future__ import annotations

from collections.abc import Sequence

from lcp_engine.engine.reports.files_on_disk import compared
from lcp_engine.sandbox.file_access import confined_threads
from lcp_engine.sandbox.landlock import Isolation
from lcp_engine.sandbox.root_identity import KnownRoot
from lcp_engine.store.db.database import Database
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.queries.mission_facts import Course, Facts
from lcp_engine.store.queries.mission_report import MOST, find_facts
from lcp_engine.store.queries.mission_spec import changed_root
from lcp_engine.store.queries.progress import find_course


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
    return compared(facts, known, confined_threads(isolation).read)


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
    return compared(facts, known, confined_threads(isolation).read), course
