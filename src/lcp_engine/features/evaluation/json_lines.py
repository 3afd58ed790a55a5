"""Keep what becomes known in a file of JSON lines, which a kill may cut."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from threading import Lock

from lcp_engine.core.json_values import JsonObject
from lcp_engine.core.safe_text import json_line


class JsonLines:
    """A file with an object on each line. Any thread may call."""

    def __init__(self, file: Path) -> None:
        self._file, self._writing = file, Lock()

    def add(self, line: JsonObject) -> None:
        """Append an object."""
        with self._writing, self._file.open("a", encoding="utf-8") as file:
            file.write(f"{json_line(line)}\n")

    def read(self) -> Iterator[JsonObject]:
        """The objects in order, without a line that a kill has cut."""
        if not self._file.exists():
            return
        for text in self._file.read_text(encoding="utf-8").splitlines():
            try:
                line: JsonObject = json.loads(text)
            except ValueError:
                continue
            yield line
