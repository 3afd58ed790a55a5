"""Read the verdict of a tool, such as `1 failed, 12 passed`, from the output of a command. Pure."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from posixpath import basename

from lcp_engine.core.safe_text import without_escapes

_MOST = 300
"""Characters of a verdict."""
_LONGEST = 2000
"""Characters of a line that are looked at."""
_MOST_TOOLS = 3
"""Tools whose verdicts are told, if one command runs several."""
_VIEWERS = {
    "awk", "bat", "cat", "diff", "echo", "fd", "find", "git", "grep", "head", "less", "ls", "more", "printf", "rg",
    "sed", "sort", "tail", "tree", "wc",
}  # fmt: skip
"""Programs that show other texts, whose verdicts are not theirs."""


def verdict_of(command: Sequence[str], exit_code: int | None, stdout: str, stderr: str) -> str | None:
    """The verdict of the tools that a command ran, on one line; None if none of them is known.

    Results of tests come first. Errors of compilers, build tools and uncaught exceptions are told if the command has
    failed and no result of tests says so. Of several tools the first three are told, failures before successes.
    """
    if not command or basename(command[0]) in _VIEWERS:
        return None
    text = _plain(f"{stdout}\n{stderr}")
    found = [each for read in _OF_TESTS if (each := read(text)) is not None]
    if exit_code != 0 and not any(each.has_failed for each in found):
        stopped = (_first(text, readers) for readers in (_OF_CHECKS, _OF_ERRORS))
        found += [each for each in stopped if each is not None][:1]
    elif not found:
        found = [each for read in _OF_CHECKS if (each := read(text)) is not None]
    found.sort(key=lambda each: not each.has_failed)
    said = "; ".join(dict.fromkeys(each.said for each in found[:_MOST_TOOLS]))
    return (said if len(said) <= _MOST else f"{said[: _MOST - 1]}…") or None


@dataclass(frozen=True)
class _Found:
    said: str
    has_failed: bool


_Reader = Callable[[str], _Found | None]


def _first(text: str, readers: Iterable[_Reader]) -> _Found | None:
    """What the first reader finds that finds a failure."""
    found = (read(text) for read in readers)
    return next((each for each in found if each is not None and each.has_failed), None)


def _plain(text: str) -> str:
    """`text` without colours, with the states of a progress bar as lines; of long lines the beginning."""
    lines = without_escapes(text).replace("\r", "\n").split("\n")
    return "\n".join(line if len(line) <= _LONGEST else line[:_LONGEST] for line in lines)


def _lines(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.MULTILINE)


def _last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    last = None
    for each in pattern.finditer(text):
        last = each
    return last


def _ended(said: str, has_failed: bool, first: re.Pattern[str], text: str) -> _Found:
    """A verdict, with the name of the first test that failed as `first` finds it."""
    match = first.search(text) if has_failed else None
    return _Found(said if match is None else f"{said}; first: {match[1].strip()}", has_failed)


def _counts(counts: Iterable[tuple[int, str]]) -> str:
    """`1 failed, 2 passed` without what there is none of."""
    return ", ".join(f"{count:,} {word}" for count, word in counts if count)


def _total(counts: Sequence[tuple[int, str]], has_failed: bool) -> _Found:
    return _Found(_counts(counts) or "no tests ran", has_failed or not any(count for count, _ in counts))


def _s(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"


# Tests

_PYTEST = _lines(
    r"^(?:=+ )?((?:\d+ [a-z][a-z ]*, )*\d+ [a-z][a-z ]*|no tests ran) in \d[\d.]*s(?: \([\d:, days]+\))?(?: =+)?$"
)
_PYTEST_WORDS = re.compile(
    r"\d+ (?:passed|failed|skipped|errors?|deselected|xfailed|xpassed|warnings?|rerun)\b|no "
)
_PYTEST_SUMMARY = _lines(r"^=+ short test summary info =+$")
_PYTEST_FAILED = _lines(r"^(?:FAILED|ERROR) (\S[^\n]*?)(?: - [^\n]*)?$")
_PYTEST_TITLE = _lines(r"^_{3,} (\S[^\n]*?) _{3,}$")
_PYTEST_REASON = _lines(r"^ERROR: (?!usage:)(\S[^\n]*)$|^[\w./-]*pytest[\w.]*: error: ([^\n]*)$")
_PYTEST_STOPPED = _lines(
    r"^ImportError while loading (conftest '[^'\n]+')[^\n]*\n(?:[^\n]*\n){0,200}?E +([^\n]+)$"
    r"|^ERROR: (Error importing plugin \"[^\n]+)$|^[\w./-]*pytest[\w.]*: error: ([^\n]*)$"
)
_COVERAGE = _lines(r"^(?:FAIL|ERROR:?) ?(Required test coverage [^\n]*)$|^(Coverage failure: [^\n]*)$")


def _pytest(text: str) -> _Found | None:
    summary = _last(_PYTEST, text)
    if summary is None or not _PYTEST_WORDS.match(summary[1]):
        return _quiet_pytest(text)
    said, first = summary[1], _PYTEST_FAILED if _PYTEST_FAILED.search(text) else _PYTEST_TITLE
    has_failed = bool(re.search("failed|error|no tests", said)) or not re.search(
        "passed|skipped|xfailed", said
    )
    if has_failed and not first.search(text) and (reason := _PYTEST_REASON.search(text)):
        return _Found(f"{said}; {reason[1] or reason[2]}", True)
    if missing := _COVERAGE.search(text):
        return _Found(f"{said}; {missing[1] or missing[2]}", True)
    return _ended(said, has_failed, first, text)


def _quiet_pytest(text: str) -> _Found | None:
    """`pytest -qq` says only which tests failed, and nothing is counted if its arguments are wrong."""
    start = _last(_PYTEST_SUMMARY, text)
    if start is None:
        reason = _PYTEST_STOPPED.search(text)
        return reason and _Found(f"no tests ran; {': '.join(filter(None, reason.groups()))}", True)
    part = text[start.end() :]
    failed, errors = (len(re.findall(rf"(?m)^{word} ", part)) for word in ("FAILED", "ERROR"))
    if not failed + errors:
        return None
    said = _counts(((failed, "failed"), (errors, f"error{'' if errors == 1 else 's'}")))
    return _ended(said, True, _PYTEST_FAILED, part)


_UNITTEST = _lines(r"^Ran (\d+) tests? in [\d.]+s\n+(OK|FAILED|NO TESTS RAN)( \([^)\n]*\))?$")
_UNITTEST_FAILED = _lines(r"^(?:FAIL|ERROR): ([^\n]+)$")


def _unittest(text: str) -> _Found | None:
    found = _last(_UNITTEST, text)
    if found is None:
        return None
    count, outcome = int(found[1]), found[2] + (found[3] or "")
    has_failed = found[2] != "OK" or count == 0
    said = f"{_s(count, 'test')}: {outcome}"
    return _ended(said, has_failed, _UNITTEST_FAILED, text)


_GO = _lines(r"^(ok|FAIL|\?) *\t(\S+)(?:[ \t]+([^\n]*))?$")
_GO_FAILED = _lines(r"^ *--- FAIL: (\S+)")
_GO_JSON = _lines(r'^\{"[^\n]*"Action":"(?:pass|fail|skip)"[^\n]*\}$')


def _go(text: str) -> _Found | None:
    text = f"{text}\n{_told_by_go(text)}"
    packages = [*{each[2]: each for each in _GO.finditer(text)}.values()]
    good = sum(each[1] == "ok" for each in packages)
    bad = [each for each in packages if each[1] == "FAIL"]
    if not packages:
        return None
    said = _counts(((len(bad), f"package{'' if len(bad) == 1 else 's'} failed"), (good, "ok")))
    if not bad:
        return _Found(f"{_s(good, 'package')} ok" if good else "no test files", not good)
    first, why = _GO_FAILED.search(text), bad[0][3] or ""
    test = why if why.startswith("[") else first[1] if first else ""
    return _Found(f"{said}; first: {bad[0][2]} {test}".rstrip(), True)


def _told_by_go(text: str) -> str:
    """Lines of `go test` within those of `go test -json`."""
    said: list[str] = []
    for line in text.split("\n"):
        if not line.startswith('{"') or '"Action":"output"' not in line:
            continue
        try:
            part = json.loads(line)
        except ValueError:
            continue
        said.append(str(part.get("Output", "")))
    return "".join(said)


_JEST_TESTS = _lines(r"^Tests: +([^\n]*\btotal)$")
_JEST_SUITES = _lines(r"^Test Suites: +([^\n]*\btotal)$")
_JEST_FAILED = _lines(r"^ +● ([^\n]+)$")
_NO_JEST = _lines(r"^(No tests found, exiting with code 1|No test files found, exiting with code 1)$")


def _jest(text: str) -> _Found | None:
    tests, suites = _last(_JEST_TESTS, text), _last(_JEST_SUITES, text)
    if none := _NO_JEST.search(text):
        return _Found(none[1].partition(",")[0], True)
    if tests is None or suites is None:
        return None
    if " failed" in suites[1] and " failed" not in tests[1]:
        return _ended(f"suites: {suites[1]}", True, _JEST_FAILED, text)
    has_failed = " failed" in tests[1]
    return _ended(tests[1], has_failed, _JEST_FAILED, text)


_VITEST = _lines(r"^ +Tests  ([^\n]*\(\d+\)|no tests)$")
_VITEST_FILES = _lines(r"^ +Test Files  ([^\n]*\(\d+\))$")
_VITEST_FAILED = _lines(r"^ FAIL  ([^\n]+)$")


def _vitest(text: str) -> _Found | None:
    tests, files = _last(_VITEST, text), _last(_VITEST_FILES, text)
    if files is None:
        return None
    has_failed = " failed" in files[1]
    is_of_files = tests is None or (has_failed and " failed" not in tests[1])
    said = f"files: {files[1]}" if is_of_files or tests is None else tests[1]
    said = said.replace(" | ", ", ")
    return _ended(said, has_failed, _VITEST_FAILED, text)


_MOCHA = _lines(r"^  (\d+) (passing|pending|failing)(?: \([^)\n]*\))?$")
_MOCHA_FAILED = re.compile(r"^  1\) ([^\n]+(?:\n {4,}[^\n]+)*?):\n", re.MULTILINE)


def _mocha(text: str) -> _Found | None:
    found = {each[2]: int(each[1]) for each in _MOCHA.finditer(text)}
    if "passing" not in found:
        return None
    failing = found.get("failing", 0)
    said = _counts((found.get(word, 0), word) for word in ("failing", "passing", "pending")) or "0 passing"
    name = _MOCHA_FAILED.search(text) if failing else None
    return _Found(f"{said}; first: {' '.join(name[1].split())}" if name else said, failing > 0)


def _tally(
    pattern: re.Pattern[str], words: Mapping[str, str], needed: str, failed: re.Pattern[str]
) -> _Reader:
    """A reader of counts, each on a line with one of these words, of which one is always there."""

    def read(text: str) -> _Found | None:
        counts = dict.fromkeys(words.values(), 0)
        found = [*pattern.finditer(text)]
        if not any(each[1] == needed for each in found):
            return None
        for each in found:  # each workspace or directory says its own
            counts[words[each[1]]] += int(each[2])
        bad = counts["failed"] + counts.get("cancelled", 0)
        said = _counts((count, word) for word, count in counts.items()) or "no tests ran"
        return _ended(said, bad > 0, failed, text)

    return read


_node = _tally(
    _lines(r"^(?:#|\u2139) (pass|fail|cancelled|skipped) +(\d+)$"),  # of tape, too
    {"fail": "failed", "cancelled": "cancelled", "pass": "passed", "skipped": "skipped"},
    "pass",
    _lines(r"^(?:not ok \d+ (?:- )?|✖ )([^\n]+?)(?: \([\d.]+ms\))?$"),
)
_bun = _tally(
    _lines(r"^ (?=\d+ (pass|fail|error|skip|todo)s?$)(\d+)"),
    {"fail": "failed", "error": "failed", "pass": "passed", "skip": "skipped", "todo": "to do"},
    "pass",
    _lines(r"^\(fail\) ([^\n]+?)(?: \[[\d.]+m?s\])?$"),
)
_automake = _tally(
    _lines(r"^# (FAIL|ERROR|XPASS|PASS|XFAIL|SKIP): +(\d+)$"),
    {
        "FAIL": "failed", "ERROR": "failed", "XPASS": "failed", "PASS": "passed", "XFAIL": "xfailed", "SKIP": "skipped",
    },
    "PASS",
    _lines(r"^(?:FAIL|ERROR|XPASS): ([^\n]+)$"),
)  # fmt: skip
_meson = _tally(
    _lines(r"^(Fail|Unexpected Pass|Timeout|Ok|Expected Fail|Skipped): +(\d+) *$"),
    {
        "Fail": "failed", "Unexpected Pass": "failed", "Timeout": "failed", "Ok": "passed", "Expected Fail": "xfailed",
        "Skipped": "skipped",
    },
    "Ok",
    _lines(r"^ *\d+/\d+ ([^\n]*?) +(?:FAIL|TIMEOUT|ERROR|UNEXPECTEDPASS)\b"),
)  # fmt: skip
_junit = _tally(
    _lines(r"^\[ +(?=\d+ tests (failed|aborted|successful|skipped) +\]$)(\d+)"),
    {"failed": "failed", "successful": "passed", "aborted": "skipped", "skipped": "skipped"},
    "successful",
    _lines(r"^Failures \(\d+\):\n {2}([^\n]+)$"),
)
_googletest = _tally(
    _lines(r"^\[  (FAILED|PASSED)  \] (\d+) tests?[.,]"),
    {"FAILED": "failed", "PASSED": "passed"},
    "PASSED",
    _lines(r"^\[  FAILED  \] (\D\S*)"),
)

_TAP_PLAN = _lines(r"^1\.\.\d+$")
_TAP_TEST = _lines(r"^(not ok|ok) \d+(?: -)?(?: ([^\n]*?))??(?: # *(?i:(skip|todo))\b[^\n]*)?$")


def _tap(text: str) -> _Found | None:
    tests = [*_TAP_TEST.finditer(text)]
    if not tests or _TAP_PLAN.search(text) is None or _PROVE.search(text) or _node(text):
        return None
    bad = [each for each in tests if each[1] == "not ok" and not each[3]]
    skipped = sum(bool(each[3]) for each in tests)
    passed = len(tests) - len(bad) - skipped
    found = _total(((len(bad), "failed"), (passed, "passed"), (skipped, "skipped or todo")), bool(bad))
    return _Found(f"{found.said}; first: {bad[0][2]}", True) if bad and bad[0][2] else found


_CTEST = _lines(r"^(\d+)% tests passed, (\d+) tests? failed out of (\d+)")
_CTEST_FAILED = _lines(r"^The following tests FAILED:\n\s+\d+ - ([^\n]+?)(?: \([^)\n]*\))?(?: +\w+)?$")
_NO_CTEST = _lines(r"^No tests were found!!!$")


def _ctest(text: str) -> _Found | None:
    found = _last(_CTEST, text)
    if found is None:
        return _Found("no tests were found", True) if _NO_CTEST.search(text) else None
    failed, count = int(found[2]), int(found[3])
    if not failed:
        return _Found(f"{count:,} passed", False)
    said = _counts(((failed, "failed"), (count - failed, "passed")))
    return _ended(said, True, _CTEST_FAILED, text)


_PROVE = _lines(r"^Files=(\d+), Tests=(\d+),[^\n]*\nResult: (\w+)$")
_PROVE_FAILED = _lines(r"^(\S+) +\(Wstat: ")


def _prove(text: str) -> _Found | None:
    found = _last(_PROVE, text)
    if found is None:
        return None
    has_failed = found[3] != "PASS"
    said = f"Result: {found[3]}, {_s(int(found[2]), 'test')} in {_s(int(found[1]), 'file')}"
    return _ended(said, has_failed, _PROVE_FAILED, text)


def _sums(failed: str, *patterns: str, is_last: bool = False, may_be_empty: bool = False) -> _Reader:
    """A reader of the counts on all lines, or the last one, that the first fitting pattern finds.

    Groups are named by what they count; of `run` the rest is what has no group, `passed` or `failed`. The expression
    `failed` finds the first test that did.
    """
    first, lines = _lines(failed), [*map(_lines, patterns)]

    def read(text: str) -> _Found | None:
        found = next(filter(None, ([*line.finditer(text)] for line in lines)), [])
        if not found:
            return None
        counts = Counter[str]()
        for each in found[-1:] if is_last else found:
            counts.update({word: int(count or 0) for word, count in each.groupdict().items()})
        run, rest = counts.pop("run", None), "failed" if "passed" in counts else "passed"
        counts["failed"] += counts.pop("errors", 0)
        if run is not None:
            counts[rest] += run - counts.total()
        words = [(counts[word], word) for word in ("failed", "passed", "skipped", "ignored")]
        total = _total(words, counts["failed"] > 0)
        has_failed = total.has_failed and (counts.total() > 0 or not may_be_empty)
        return _ended(total.said, has_failed, first, text)

    return read


_cargo = _sums(
    r"^test (\S[^\n]*?) \.\.\. FAILED$",
    r"^test result: (?:ok|FAILED)\. (?P<passed>\d+) passed; (?P<failed>\d+) failed; (?P<ignored>\d+) ignored;",
    may_be_empty=True,  # as the programs of tests of a crate's documentation usually are
)
_JAVA = r"Tests run: (?P<run>\d+), Failures: (?P<failed>\d+), Errors: (?P<errors>\d+)(?:, Skipped: (?P<skipped>\d+))?"
_java = _sums(
    r"^(?:\[ERROR\] {2,}(?=\w[\w.$]*[.:])| *\[junit\] Test (?=\S+ FAILED))([^\n]*?)(?: »[^\n]*| FAILED)?$",
    rf"^(?:\[\w+\] )?{_JAVA}(?! *, Time)\.?$",
    rf"^ *\[junit\] {_JAVA}, Time",
)
_gradle = _sums(
    r"^(\S[^\n]*) FAILED$",
    r"^(?P<run>\d+) tests? completed, (?P<failed>\d+) failed(?:, (?P<skipped>\d+) skipped)?$",
    is_last=True,
)
_dotnet = _sums(
    r"^ +Failed (\S+) \[",
    r"^(?:Passed|Failed)! +- Failed: +(?P<failed>\d+), Passed: +(?P<passed>\d+), Skipped: +(?P<skipped>\d+), Total: ",
)
_cabal = _sums(
    r"^Test suite (\S+): FAIL$",
    r"^\d+ of \d+ test suites \((?P<passed>\d+) of (?P<run>\d+) test cases\) passed\.$",
)

_BAD = re.compile(
    r"[1-9]\d* (?:failed|failures?|errors?|timed out)\b|\b(?:Failures|Errors|FAIL|Failed):?\s+[1-9]"
)


def _summary(pattern: str, failed: str) -> _Reader:
    """A reader of the last line with counts, which is told as it is; `failed` finds the first test that failed."""
    line, first = _lines(pattern), _lines(failed)

    def read(text: str) -> _Found | None:
        found = _last(line, text)
        said = " ".join("".join(filter(None, found.groups())).replace(" |", ",").split()) if found else ""
        return _ended(said, _BAD.search(said) is not None, first, text) if said else None

    return read


_SUMMARIES = tuple(_summary(line, failed) for line, failed in (
    (r"^ +Summary \[[^]\n]*\] +(\d[^\n]*? tests? run: [^\n]+)$", r"^ +FAIL \[[^]\n]*\] +(?:\([^)\n]*\) +)?([^\n]+)$"),
    (r"^(?:ok|FAILED) \| (\d+ passed[^\n]*?) \([\dhms.]+\)$", r"^(\S[^\n]*) => \S+:\d+:\d+$"),  # Deno
    (  # RSpec, bats and ExUnit
        r"^((?:\d+ (?:examples?|tests?|doctests?|propert(?:y|ies)), )+\d+ failures?(?:, \d+ [^\n]+)?)$",
        r"^(?:rspec (?=\S+ *(?:#|$))| ✗ | {2}1\) (?=test )|An error occurred while loading )(\S[^\n]*?)(?: +#.*|\.)?$",
    ),
    (
        r"^(\d+ (?:runs|tests), \d+ assertions, \d+ failures, \d+ errors(?:, \d+ \w+)*)$",
        r"^(?: *\d+\) )?(?:Failure|Error):\s(\w[\w:]*#[^\n]+?|\w+\([\w:]+\))(?: \[[^\n]*|:[^\n]*)?$",
    ),
    (r"^(Tests: \d+, Assertions: \d+[^\n]*?)\.?$", r"^1\) (\S+)$"),  # PHPUnit
    (r"^(OK \(\d+ tests?)(?:, \d+ assertions?)?(\))$|^(Tests run: \d+,  Failures: \d+)$", r"^1\) (\S[^\n]*)$"),
    (r"^(Total tests run: \d+, [^\n]*\bFailures: \d+[^\n]*)$", r"^FAILED: (\S+)"),  # TestNG
    (r"^\[ (FAIL \d+ \| WARN \d+ \| SKIP \d+ \| PASS \d+) \]$", r"^(?:Failure|Error) \([^\n]*?\): ([^\n]*)$"),
    (r"^(\d+ success(?:es)? / \d+ failures? / \d+ errors? / \d+ pending)\b", r"^(?:Failure|Error) -> ([^\n]*)$"),
    (r"^\S+:\t(Total\t\d+\tPassed\t\d+\tSkipped\t\d+\tFailed\t\d+)$", r"^==== (\S+) [^\n]* FAILED$"),
))  # fmt: skip
"""Also of nextest, minitest, JUnit 4 by hand, testthat, busted and tcltest."""


_OF_TESTS: Sequence[_Reader] = (
    _pytest, _unittest, _cargo, _go, _jest, _vitest, _mocha, _node, _bun, _automake, _meson, _googletest,
    _junit, _tap, _ctest, _prove, _java, _gradle, *_SUMMARIES, _dotnet, _cabal,
)  # fmt: skip


# Checks and compilers

_MYPY = _lines(
    r"^(Found \d+ errors? in \d+ files?[^\n]*?)(?: \(checked [^\n]*\))?$|^(Success: no issues found in [^\n]+)$"
)
_MYPY_FAILED = _lines(r"^(\S[^\n]*?:\d+: error: [^\n]+)$")
_RUFF = _lines(r"^(?:Found (\d+) errors?(?: \([^)\n]*\))?\.|(All checks passed!))$")
_RUFF_PLACE = _lines(r"^([A-Z]+\d+ [^\n]+)\n +--> (\S+)$|^(\S+:\d+:\d+): ([A-Z]+\d+ [^\n]+)$")
_RUFF_FORMAT = _lines(r"^(\d+ files? would be reformatted)(?:, [^\n]+)?$")
_ESLINT = _lines(r"^✖ (\d+ problems? \((\d+) errors?, [^)\n]*\))$")
_TSC = _lines(
    r"^(\S[^\n]*?\(\d+,\d+\): error TS\d+: [^\n]+|\S+:\d+:\d+ - error TS\d+: [^\n]+|error TS\d+: [^\n]+)$"
)
_RUSTC = _lines(r"^(error(?:\[E\d+\])?: [^\n]+)\n +--> (\S+)$")
_CC = _lines(r"^((?:\[ERROR\] )?\S+?:(?:\d+(?::\d+)?|\[\d+,\d+\]):? (?:(?:fatal )?error: )?[^\n]+)$")
_CC_ERROR = re.compile(r":\d+: (?:fatal )?error: |^\[ERROR\] \S+:\[\d+,\d+\] ")
_GO_BUILD = _lines(r"^# \S+(?: \[\S+\])?\n(?:vet: )?(\S+\.go:\d+:\d+: [^\n]+)$")
_LINKER = _lines(
    r"^[^\n]*?(undefined reference to [^\n]+|cannot find -l[^\n]+|multiple definition of [^\n]+)$"
)


_LINT = _lines(r"^(\S[^\n:]*\.pyi?:\d+(?::\d+)?: [A-Z]+\d+:? [^\n]+)$")  # of flake8, pycodestyle and Pylint
_BLACK = _lines(r"^(\d+ files? would be reformatted|\d+ files? would fail to reformat)(?:, [^\n]+)?\.$")
_ISORT = _lines(r"^ERROR: (\S[^\n]*) Imports are incorrectly sorted and/or formatted\.$")
_RUSTFMT = _lines(r"^Diff in (\S[^\n]*?):?(?: at line |:)(\d+):$")
_PRETTIER = _lines(
    r"^\[warn\] (Code style issues [^\n]*?)\. Run Prettier [^\n]*$|^(All matched files use Prettier [^\n]*)$"
)


def _mypy(text: str) -> _Found | None:
    found = _last(_MYPY, text)
    if found is None or found[2]:
        return found and _Found(found[2], False)
    return _ended(found[1], True, _MYPY_FAILED, text)


def _ruff(text: str) -> _Found | None:
    if changed := _last(_RUFF_FORMAT, text):
        return _Found(changed[1], True)
    found = _last(_RUFF, text)
    if found is None or found[2]:
        return found and _Found(found[2], False)
    place = _RUFF_PLACE.search(text)
    first = "" if place is None else f"; first: {place[2] or place[3]}: {place[1] or place[4]}"
    return _Found(f"{_s(int(found[1]), 'error')}{first}", True)


def _eslint(text: str) -> _Found | None:
    found = _last(_ESLINT, text)
    return found and _Found(found[1], found[2] != "0")


def _prettier(text: str) -> _Found | None:
    found = _last(_PRETTIER, text)
    return found and _Found(found[1] or found[2], found[1] is not None)


def _lint(text: str) -> _Found | None:
    found = None if _RUFF.search(text) else [each[1] for each in _LINT.finditer(text)]
    return _Found(f"{_s(len(found), 'problem')}; first: {found[0]}", True) if found else None


def _formatters(text: str) -> _Found | None:
    if black := _last(_BLACK, text):
        return _Found(black[1], True)
    if unsorted := [*dict.fromkeys(each[1] for each in _ISORT.finditer(text))]:
        return _Found(f"imports of {_s(len(unsorted), 'file')} are not sorted; first: {unsorted[0]}", True)
    differing = [(each[1], each[2]) for each in _RUSTFMT.finditer(text)]
    files = _s(len({file for file, _ in differing}), "file")
    return _Found(f"{files} would be formatted; first: {':'.join(differing[0])}", True) if differing else None


_OF_CHECKS: Sequence[_Reader] = (_mypy, _ruff, _eslint, _prettier, _lint, _formatters)


def _tsc(text: str) -> _Found | None:
    return _errors([each[1] for each in _TSC.finditer(text)])


def _rustc(text: str) -> _Found | None:
    return _errors([*dict.fromkeys(f"{each[2]}: {each[1]}" for each in _RUSTC.finditer(text))])


def _cc(text: str) -> _Found | None:
    found = [each[1] for each in _CC.finditer(text) if _CC_ERROR.search(each[1])]
    return _errors([*dict.fromkeys(line.removeprefix("[ERROR] ") for line in found)])


def _go_build(text: str) -> _Found | None:
    return _errors([each[1] for each in _GO_BUILD.finditer(text)])


def _linker(text: str) -> _Found | None:
    return _errors([each[1] for each in _LINKER.finditer(text)])


def _errors(found: Sequence[str]) -> _Found | None:
    """The first of several errors, with their number."""
    if not found:
        return None
    more = f" ({len(found):,} errors)" if len(found) > 1 else ""
    return _Found(f"{found[0].strip()}{more}", True)


# Build tools, shells and exceptions

_CMAKE = _lines(r"^(CMake Error[^\n]*?):?\n+ +([^\n]+)$")
_GRADLE_WRONG = _lines(r"^\* What went wrong:\n([^\n]+)$")
_MAVEN = _lines(r"^\[ERROR\] (\w[^\n]+)$")
_NPM_WHY = _lines(
    r"^npm (?:ERR!|error) (?!code |path |workspace |location |command |A complete|errno |syscall )(\S[^\n]*)$"
)
_NPM_CODE = _lines(r"^npm (?:ERR!|error) code (\S+)$")
_NO_SCRIPT = _lines(r"^\S*python[\w.]*: (can't open file [^\n]+|No module named [^\n]+)$")
_EXCEPTION = _lines(r"^Traceback \(most recent call last\):\n(?:[ \t][^\n]*\n|\n)*(\w[^\n]*)$")
_UNCAUGHT = _lines(
    r'^((?:Uncaught )?\w*Error(?: \[\w+\])?: [^\n]+|Exception in thread "[^"\n]*" [^\n]+|panic: [^\n]+'
    r"| ?Exception during run: [^\n]+|(?:PHP )?(?:Fatal|Parse) error: [^\n]+"
    r"|[^\s:]+:\d+:in [`'][^\n]*: [^\n]+ \([A-Z][\w:]*\))$"  # of mocha, PHP and Ruby
)
_PANIC = _lines(r"^(thread '[^'\n]*' (?:\(\d+\) )?panicked at [^\n]+?):?\n([^\n]+)$")
_SHELL = _lines(
    r"^((?:\S*/)?(?:sh|bash|dash|zsh): [^\n]*(?:not found|No such file or directory|Permission denied))$"
)
_MIX = _lines(r"^\*\* \(\w+\) ([^\n]+)$")
_TOX = _lines(r"^  (\S[^\n:]*): FAIL code \d+\b[^\n]*$")
_NOX = _lines(r"^nox > (?:\* (\S[^\n]*): failed|Session (\S[^\n]*?) failed\.)$")
_MAKE = _lines(r"^(g?make(?:\[\d+\])?: \*\*\* [^\n]+)$")
_NINJA = _lines(r"^(ninja: (?:error: |build stopped: )[^\n]+)$")


def _line_of(*patterns: re.Pattern[str], last: bool = False) -> _Reader:
    """A reader of the first or last line that one of these patterns finds."""

    def read(text: str) -> _Found | None:
        for pattern in patterns:
            if found := _last(pattern, text) if last else pattern.search(text):
                return _Found(": ".join(part.strip() for part in found.groups() if part), True)
        return None

    return read


def _sessions(text: str) -> _Found | None:
    """Environments of tox and sessions of nox, for which no tool has spoken."""
    failed = [*dict.fromkeys(each[1] for each in _TOX.finditer(text))]
    failed += dict.fromkeys(each[1] or each[2] for each in _NOX.finditer(text))
    return _Found(f"failed: {', '.join(failed)}", True) if failed else None


def _npm(text: str) -> _Found | None:
    why, code = _NPM_WHY.search(text), _NPM_CODE.search(text)
    if why is None:
        return None
    return _Found(f"npm: {why[1].removesuffix(':')}{f' ({code[1]})' if code else ''}", True)


_OF_ERRORS: Sequence[_Reader] = (
    _tsc, _rustc, _cc, _go_build, _linker, _line_of(_CMAKE), _line_of(_GRADLE_WRONG), _line_of(_MAVEN),
    _line_of(_EXCEPTION, last=True), _line_of(_PANIC, _UNCAUGHT), _line_of(_NO_SCRIPT, _SHELL),
    _line_of(_MIX), _sessions, _line_of(_MAKE, _NINJA), _npm,
)  # fmt: skip
