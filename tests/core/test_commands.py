"""Which commands an entry of `commands.allow` fits: the program by its name, arguments one by one."""

from __future__ import annotations

from tests.tables import table

from lcp_engine.core.programs.commands import allows, as_entry

CASES = [
    (["pytest"], ["pytest"], True),
    (["pytest"], ["pytest", "-q"], False),
    (["pytest", "-q"], ["pytest"], False),
    (["pytest", "-q"], ["pytest", "-q"], True),
    (["pytest", "-q", "..."], ["pytest", "-q"], True),
    (["pytest", "-q", "..."], ["pytest", "-q", "tests", "-x"], True),
    (["pytest", "-q", "..."], ["pytest", "tests", "-q"], False),
    (["pytest", "..."], ["pytest; rm -rf ."], False),
    (["pytest", "..."], ["pytest2"], False),
    (["py*"], ["pytest"], False),
    (["pytest", "tests/*.py"], ["pytest", "tests/a/b.py"], True),
    (["pytest", "tests/*.py"], ["pytest", "tests/a.py -x"], False),
    (["pytest", "tests/*.py"], ["pytest", "tests/a.py\n.py"], True),
    (["pytest", "a?c"], ["pytest", "abc"], True),
    (["pytest", "a?c"], ["pytest", "ac"], False),
    (["pytest", "a[b]"], ["pytest", "a[b]"], True),
    (["pytest", "a[b]"], ["pytest", "ab"], False),
    (["pytest", "...", "-q"], ["pytest", "a", "-q"], False),
    (["pytest", "...", "-q"], ["pytest", "...", "-q"], True),
    (["..."], ["pytest"], False),
]


@table(("entry", "command", "fits"), CASES)
def test_an_entry_fits_part_by_part(entry: list[str], command: list[str], fits: bool) -> None:
    assert allows([entry], command) is fits


def test_without_entries_nothing_is_allowed() -> None:
    assert not allows([], ["true"])


def test_the_entry_of_a_command_fits_it_alone() -> None:
    assert as_entry(["grep", 'a "b"', "ü"]) == '["grep", "a \\"b\\"", "ü"]'
