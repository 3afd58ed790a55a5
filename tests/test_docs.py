from __future__ import annotations

import re
import runpy
from pathlib import Path

from tests.tables import table

PROJECT = Path(__file__).resolve().parent.parent
PACKAGE = PROJECT / "src" / "lcp_engine"
PAGES = [*sorted((PROJECT / "docs").glob("*.md")), PROJECT / "README.md", PROJECT / "CONTRIBUTING.md"]
# Files that missions write into their root.
DELIVERABLES = {
    "docs/PATH.md",
    "docs/TODO.md",
    "docs/refactor-plan.md",
    "docs/OVERVIEW.md",
    "RELEASE_NOTES.md",
    "KNOWN_ISSUES.md",
}
FOLDERS = sorted(
    {
        *(path.name for path in PACKAGE.iterdir() if path.is_dir()),
        *("src", "tests", "docs", "migrations", "missions", "benchmarks", "tools", "requirements"),
    }
    - {"__pycache__"}
)
NAMED = re.compile(rf"(?<![\w/.:~-])(?:{'|'.join(FOLDERS)})/[\w./-]*[\w/]")
BARE = re.compile(r"`(\w+\.py)`")
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]*))?\)")


def _prose(page: Path) -> str:
    """The text of a page without its blocks of code, and without tables about jobs of somebody's project."""
    left_out = r"^```.*?^```|^    .*?$|^\| job \| is \|\n(?:\|[^\n]*\n)+"
    return re.sub(left_out, "", page.read_text(), flags=re.DOTALL | re.MULTILINE)


def _anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@table("page", PAGES, ids=lambda page: str(page.name))
def test_every_path_that_a_page_names_exists(page: Path) -> None:
    named = set(NAMED.findall(_prose(page))) - DELIVERABLES
    missing = {path for path in named if not (PROJECT / path).exists() and not (PACKAGE / path).exists()}
    missing |= set(BARE.findall(_prose(page))) - {path.name for path in PACKAGE.rglob("*.py")}
    assert missing == set()


@table("page", PAGES, ids=lambda page: str(page.name))
def test_every_link_of_a_page_leads_to_a_page_and_a_heading(page: Path) -> None:
    for path, anchor in LINK.findall(page.read_text()):
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), path
        assert not anchor or anchor in _anchors(target), f"{path}#{anchor}"


def test_every_page_is_in_the_index_and_in_the_site() -> None:
    index, site = (PROJECT / "docs" / "index.md").read_text(), (PROJECT / "mkdocs.yml").read_text()
    names = {path.name for path in (PROJECT / "docs").glob("*.md")} - {"index.md"}
    assert {name for name in names if f"({name}" not in index or f": {name}\n" not in site} == set()


def test_the_architecture_names_every_room() -> None:
    rooms = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    modules = {path.name for path in PACKAGE.glob("*.py")} - {"__init__.py", "__main__.py"}
    text = (PROJECT / "docs" / "architecture.md").read_text()
    assert {name for name in rooms if f"| `{name}/` |" not in text} == set()
    assert {name for name in modules if f"`{name}`" not in text} == set()
    assert len(rooms) <= 14  # the features are one of them


def test_every_rule_that_is_cited_is_written_down() -> None:
    rules = set(
        re.findall(
            r"^\*\*(R\d+)\.", (PROJECT / "docs" / "rules.md").read_text(encoding="utf-8"), re.MULTILINE
        )
    )
    cited = {
        (rule, path.relative_to(PROJECT).as_posix())
        for room in ("src", "docs", "tests")
        for path in (*(PROJECT / room).rglob("*.py"), *(PROJECT / room).rglob("*.md"))
        for rule in re.findall(r"\bR\d{1,2}\b", path.read_text(encoding="utf-8"))
    }
    assert {(rule, path) for rule, path in cited if rule not in rules} == set()


def test_the_reference_is_what_the_models_say() -> None:
    written = runpy.run_path(str(PROJECT / "tools" / "reference.py"))["page"]()
    assert (PROJECT / "docs" / "reference.md").read_text(encoding="utf-8") == written, (
        "python tools/reference.py"
    )


def test_the_reference_names_every_variable_of_the_environment() -> None:
    code = "".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    read = set(re.findall(r"\bLCP_[A-Z_]*[A-Z]\b", code)) - {"LCP_COMPLETE"}
    text = (PROJECT / "docs" / "reference.md").read_text(encoding="utf-8")
    assert {name for name in read if f"`{name}`" not in text} == set()


PROTOCOL = (PROJECT / "docs" / "protocol.md").read_text()
STATEMENTS = [
    line for line in PROTOCOL.splitlines() if line.startswith("| ") and not line.startswith("| statement")
]


def test_every_test_that_shows_a_statement_of_the_protocol_is_there() -> None:
    named = set(re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", PROTOCOL))
    assert len(named) > 100
    missing = {
        f"{path}::{name}"
        for path, name in named
        if not re.search(rf"^def {name}\(", (PROJECT / path).read_text(), re.MULTILINE)
    }
    assert missing == set()


@table("line", STATEMENTS, ids=lambda line: line[2:50])
def test_every_statement_of_the_protocol_names_its_tests_or_says_that_there_is_none(line: str) -> None:
    _, statement, fact, shown, _ = re.split(r" ?(?<!\\)\| ?", line)
    assert statement
    assert fact
    if "no test" not in shown:
        assert re.fullmatch(r"(`tests/[\w/]+\.py::test_\w+`(<br>)?)+", shown), shown
