"""Subjects of jobs, for people who decide on them: the resolved path, relative to the root of the mission (R25)."""

from __future__ import annotations

import json
from functools import partial

from lcp_engine.core.json_values import JsonValue, list_in
from lcp_engine.core.safe_text import Shown
from lcp_engine.core.summaries import Object, named_path, subject
from lcp_engine.errors import LcpError
from lcp_engine.sandbox.paths import Names, names_of
from lcp_engine.store.db.database import Database
from lcp_engine.store.queries.mission_spec import spec_and_root


class Subjects:
    """Subjects of jobs of any mission; the root of each mission is read once."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._names: dict[int, Names | None] = {}

    def of(self, job: Object) -> Shown:
        """Like `subject`, with the path that the job's params resolve to."""
        return subject(job, partial(self._path, int(str(job["mission_id"]))))

    def path_of(self, job: Object) -> str | None:
        """The path that the job's params resolve to, relative to its root; None if they name none."""
        params = job["params"]
        return self._path(int(str(job["mission_id"])), params) if isinstance(params, dict) else None

    def _path(self, mission_id: int, params: Object) -> str | None:
        named = named_path(params)
        if named is None:
            return None
        if mission_id not in self._names:
            self._names[mission_id] = self._names_of(mission_id)
        names = self._names[mission_id]
        if names is None:
            return named
        try:
            place = names.place(
                root=_text(params.get("root")),
                rel_path=_text(params.get("rel_path")),
                path=_text(params.get("path")),
            )
        except LcpError:  # such a job fails; what it names is shown
            return named
        return f"{place.path}/" if place.is_directory else place.path

    def _names_of(self, mission_id: int) -> Names | None:
        spec, root = self._database.read(lambda tx: spec_and_root(tx, mission_id))
        return None if root is None else names_of((root,), _aliases(spec))


def _aliases(spec: str) -> tuple[str, ...]:
    """Other names of the root, from a mission's spec; its own class is slow to load."""
    stated = json.loads(spec).get("root_aliases")
    return tuple(map(str, list_in(stated)))


def _text(value: JsonValue) -> str | None:
    return value if isinstance(value, str) else None
