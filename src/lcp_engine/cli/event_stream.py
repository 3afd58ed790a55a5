"""Follow the history as it is written, of one mission or of all."""

from __future__ import annotations

from lcp_engine.api import Engine
from lcp_engine.cli.progress import Progress
from lcp_engine.store.db.json_text import JsonObject


class Follower:
    """The events that came since the last look. With `past` the history so far is news as well."""

    def __init__(self, engine: Engine, mission_id: int | None = None, *, past: bool = True) -> None:
        self._engine = engine
        self._mission_id = mission_id
        self._seen: dict[int, int] = {} if past else engine.event_counts()

    def news(self) -> list[JsonObject]:
        """New events in the order in which they happened; each is news once."""
        found = [event for mission in self._changed() for event in self._of(mission)]
        return sorted(found, key=lambda event: str(event["at"])) if self._mission_id is None else found

    def show(self, progress: Progress) -> bool:
        """Tell the news. Whether there was any."""
        news = self.news()
        progress.show(news)
        return bool(news)

    def _changed(self) -> list[int]:
        if self._mission_id is not None:
            return [self._mission_id]
        counts = self._engine.event_counts()
        return [mission for mission, count in counts.items() if count > self._seen.get(mission, 0)]

    def _of(self, mission_id: int) -> list[JsonObject]:
        events = self._engine.events(mission_id, after_seq=self._seen.get(mission_id, 0))
        if events:
            last = events[-1]["seq"]
            assert isinstance(last, int)
            self._seen[mission_id] = last
        return events
