"""Write into tests/README.md what the tests of each folder cost, from the reports of a run: `make times`.

    tools/times.py NAME=REPORT.xml...

NAME is the target that wrote the report. Seconds are those of the workers, added up; processor seconds include those of
the processes that a test started and waited for.
"""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree as ET

PAGE = Path(__file__).parent.parent / "tests" / "README.md"
BEGIN, END = "<!-- times: begin -->", "<!-- times: end -->"
SLOWEST = 20


class Cost:
    """What several tests cost together."""

    def __init__(self) -> None:
        self.tests = 0
        self.seconds = 0.0
        self.processor = 0.0

    def add(self, case: ET.Element) -> None:
        self.tests += 1
        self.seconds += float(case.get("time", 0))
        properties = case.iterfind("properties/property")
        self.processor += sum(float(one.get("value", 0)) for one in properties if one.get("name") == "cpu")

    def cells(self) -> list[str]:
        return [f"{self.tests:,}", f"{self.seconds:,.0f}", f"{self.processor:,.0f}"]


def read(report: Path) -> tuple[dict[str, Cost], dict[str, Cost], Cost]:
    """The cost of each folder, of each file, and of all."""
    folders, files, whole = defaultdict[str, Cost](Cost), defaultdict[str, Cost](Cost), Cost()
    for case in ET.parse(report).iter("testcase"):
        parts = case.get("classname", "").split(".")
        below = 3 if parts[1] == "features" else 2
        folder = "/".join(parts[1:below]) if len(parts) > below else "tests"
        for cost in (folders[folder], files["/".join(parts[1:])], whole):
            cost.add(case)
    return folders, files, whole


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---", *(["---:"] * (len(head) - 1))], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main(given: list[str]) -> None:
    reports = {name: read(Path(file)) for name, _, file in (one.partition("=") for one in given)}
    names = sorted({folder for folders, _, _ in reports.values() for folder in folders})
    head = ["folder", *(f"{name}: {what}" for name in reports for what in ("tests", "seconds", "processor"))]
    rows = [[name, *(cell for folders, _, _ in reports.values() for cell in folders.get(name, Cost()).cells())]
            for name in names]  # fmt: skip
    rows.append(["all", *(cell for _, _, whole in reports.values() for cell in whole.cells())])
    slowest = [
        [file, name, *cost.cells()]
        for name, (_, files, _) in reports.items()
        for file, cost in sorted(files.items(), key=lambda item: -item[1].processor)[:SLOWEST]
    ]
    written = "\n\n".join([
        BEGIN,
        f"Measured on {os.cpu_count()} cores.",
        table(head, rows),
        f"The {SLOWEST} files of each that take most processor time:",
        table(["file", "of", "tests", "seconds", "processor"], slowest),
        END,
    ])  # fmt: skip
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    PAGE.write_text(before + written + rest.partition(END)[2], encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
