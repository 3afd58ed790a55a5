"""Show missions and jobs to programs: the JSON objects of CONTRACT.md with attributes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from pydantic import JsonValue

from lcp_engine.store.db.json_text import JsonObject


@dataclass(frozen=True)
class _Record:
    json: JsonObject

    def _text(self, name: str) -> str:
        return str(self.json[name])

    def _maybe(self, name: str) -> str | None:
        value = self.json[name]
        return None if value is None else str(value)

    def _number(self, name: str) -> int:
        value = self.json[name]
        return value if isinstance(value, int) else 0

    def _object(self, name: str) -> JsonObject:
        value = self.json[name]
        return value if isinstance(value, dict) else {}

    def _list(self, name: str) -> list[JsonValue]:
        value = self.json[name]
        return value if isinstance(value, list) else []

    def _time(self, name: str) -> datetime | None:
        value = self.json[name]
        return datetime.fromisoformat(value) if isinstance(value, str) else None


class Mission(_Record):
    """A mission as it was when it was read; `json` is the whole object."""

    @property
    def id(self) -> int:
        return self._number("id")

    @property
    def uid(self) -> str:
        return self._text("uid")

    @property
    def name(self) -> str:
        return self._text("name")

    @property
    def goal(self) -> str:
        return self._text("goal")

    @property
    def root(self) -> str | None:
        return self._maybe("root")

    @property
    def status(self) -> str:
        """`running`, `waiting`, `completed`, `failed` or `cancelled`."""
        return self._text("status")

    @property
    def outcome(self) -> str | None:
        """What ended it: an action, `limit:<name>`, `no_progress`, `invalid_reply`, `job_failed` or `cancelled`."""
        return self._maybe("outcome")

    @property
    def summary(self) -> str | None:
        return self._maybe("summary")

    @property
    def turns(self) -> int:
        return self._number("turns")

    @property
    def jobs(self) -> dict[str, int]:
        """How many jobs are in each state."""
        return {state: count for state, count in self._object("jobs").items() if isinstance(count, int)}

    @property
    def deliverables(self) -> list[JsonValue]:
        """Paths that the mission has written."""
        return self._list("deliverables")

    @property
    def error(self) -> JsonObject:
        """The `AgentError` that it ended with; empty where there is none."""
        return self._object("error")

    @property
    def ended_at(self) -> datetime | None:
        return self._time("ended_at")


class Schedule(_Record):
    """A mission that is launched again and again, as it was when it was read; `json` is the whole object."""

    @property
    def name(self) -> str:
        return self._text("name")

    @property
    def rule(self) -> str:
        """When it is due, in a few words."""
        return (
            f"every {self.json['every']}"
            if self.json["every"]
            else f"{self.json['cron']} {self.json['timezone']}"
        )

    @property
    def next_due_at(self) -> datetime:
        return datetime.fromisoformat(self._text("next_due_at"))

    @property
    def missed(self) -> int:
        """How many due times passed without a runner."""
        return self._number("missed")

    @property
    def skipped(self) -> int:
        """How many due times passed while a mission of it ran or waited."""
        return self._number("skipped")

    @property
    def mission_id(self) -> int | None:
        """Its newest mission."""
        found = self._object("mission").get("id")
        return found if isinstance(found, int) else None

    @property
    def error(self) -> str | None:
        """Why what is due cannot be launched."""
        return self._maybe("error")


class Job(_Record):
    """A job as it was when it was read; `json` is the whole object."""

    @property
    def id(self) -> int:
        return self._number("id")

    @property
    def mission_id(self) -> int:
        return self._number("mission_id")

    @property
    def kind(self) -> str:
        return self._text("kind")

    @property
    def name(self) -> str | None:
        return self._maybe("name")

    @property
    def state(self) -> str:
        return self._text("state")

    @property
    def reason(self) -> str | None:
        """Why it is held, blocked, rejected, skipped or waits for a retry."""
        return self._maybe("reason")

    @property
    def params(self) -> JsonObject:
        return self._object("params")

    @property
    def result(self) -> JsonObject | None:
        return None if self.json["result"] is None else self._object("result")

    @property
    def error(self) -> JsonObject | None:
        return None if self.json["error"] is None else self._object("error")

    @property
    def attempt(self) -> int:
        return self._number("attempt")

    @property
    def attempts(self) -> list[JsonValue]:
        return self._list("attempts")
