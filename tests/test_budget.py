from __future__ import annotations

import os
import runpy
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parent.parent
TOOL = PROJECT / "tools" / "budget.py"
STATED = Path("tools") / "rooms.toml"
find_faults: Callable[[Path], list[str]] = runpy.run_path(str(TOOL))["find_faults"]

LIMITS = "kernel_is_closed = false\ndocstrings = 1\nin_circles = 0\n"
LOOP = "[rooms.kernel-loop]\nmost = 3\nfiles = ['loop.py', '__init__.py']\n"
MEMORY = "[rooms.memory]\nmost = 2\nfiles = ['memory/*']\n"
KNOWN = "imports = ['loop.py -> memory/entry.py']\nreads = { lesson = 1 }\n"
STATED_SO = LIMITS + LOOP + MEMORY + KNOWN
MODULES = {
    "__init__.py": "",
    "loop.py": (
        "import lcp_engine.memory.entry\n\n\n"
        "# Blank lines and comments are no code.\n"
        'def run(job):\n    """What runs a job.\n\n    Of two lines.\n    """\n    return job.lesson\n'
    ),
    "memory/__init__.py": "",
    "memory/entry.py": 'class Entry:\n    title: str\n    """How an entry is called."""\n',
}
Edit = Callable[[str], str]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A small package of which every limit holds."""
    _write(tmp_path, MODULES)
    _state(tmp_path, STATED_SO)
    return tmp_path


def _write(project: Path, modules: Mapping[str, str]) -> None:
    for name, text in modules.items():
        path = project / "src" / "lcp_engine" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def _state(project: Path, text: str) -> None:
    (project / STATED).parent.mkdir(exist_ok=True)
    (project / STATED).write_text(text)


def _commit(project: Path, text: str) -> None:
    _state(project, text)
    _git(project, "add", "--all")
    _git(project, "commit", "--quiet", "--message", "State the limits")


def _git(project: Path, *arguments: str) -> None:
    who = {
        "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a",
        "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a",
    }
    subprocess.run(["git", *arguments], cwd=project, check=True, capture_output=True, env=os.environ | who)


def _replaced(old: str, new: str) -> Edit:
    return lambda text: text.replace(old, new)


def test_a_project_that_keeps_its_limits_has_no_faults(project: Path) -> None:
    assert find_faults(project) == []


@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [
        ("new.py", "", "src/lcp_engine/new.py is in no room; add it to `files` of its room in tools/rooms.toml"),
        (
            "memory/entry.py",
            "a = 1\nb = 2\nc = 3\n",
            ("tools/rooms.toml: memory has 3 lines of code, 2 are allowed; "
            "make it smaller, or raise `most` and say in `why` what for"),
        ),
        (
            "loop.py",
            MODULES["loop.py"].replace("return job.lesson", "return (job.lesson, job['lesson'])"),
            ("tools/rooms.toml: memory: the kernel reads `lesson` 2 times, 1 are allowed; leave it to memory, or ask "
            "through a protocol: src/lcp_engine/loop.py:10, src/lcp_engine/loop.py:10"),
        ),
        (
            "loop.py",
            "def run(job):\n    match job:\n        case Job(lesson=1) | Job(lesson=2): pass\n",
            ("tools/rooms.toml: memory: the kernel reads `lesson` 2 times, 1 are allowed; leave it to memory, or ask "
            "through a protocol: src/lcp_engine/loop.py:3, src/lcp_engine/loop.py:3"),
        ),
        (
            "loop.py",
            MODULES["loop.py"].replace("job.lesson", "job"),
            "tools/rooms.toml: memory: the kernel reads `lesson` 0 times, 1 are allowed; lower the number to 0",
        ),
        (
            "memory/entry.py",
            '"""Whether this is one."""\n',
            ("tools/rooms.toml: 2 docstrings begin with How, Of, That, What, Whether, Who, Why; 1 are allowed: "
            "begin yours with a verb or a noun; tools/budget.py --list names them"),
        ),
        (
            "loop.py",
            MODULES["loop.py"].replace("What runs", "Run"),
            ("tools/rooms.toml: 0 docstrings begin with How, Of, That, What, Whether, Who, Why; 1 are allowed: "
            "lower `docstrings` to 0"),
        ),
    ],
)  # fmt: skip
def test_a_module_that_breaks_a_limit_is_named_with_what_to_do(
    project: Path, name: str, text: str, fault: str
) -> None:
    _write(project, {name: text})
    assert fault in find_faults(project)


@pytest.mark.parametrize(
    ("edit", "fault"),
    [
        (
            _replaced("['memory/*']", "['memory/*', 'loop.py']"),
            "src/lcp_engine/loop.py is in kernel-loop and memory; leave it in one room of tools/rooms.toml",
        ),
        (
            _replaced("['memory/*']", "['memory/*', 'gone.py']"),
            "tools/rooms.toml: memory lists 'gone.py', which does not exist; remove it",
        ),
        (
            _replaced("most = 2", "most = 53"),
            "tools/rooms.toml: memory has 2 lines of code, 53 are allowed; lower `most` to 2",
        ),
        (
            lambda text: text.replace("false", "true").replace("most = 3", "most = 2"),
            (
                "tools/rooms.toml: kernel-loop has 3 lines of code, 2 are allowed; "
                "the kernel is closed: make it smaller, or move it into a feature"
            ),
        ),
    ],
)
def test_limits_that_do_not_fit_the_files_are_named_with_what_to_do(
    project: Path, edit: Edit, fault: str
) -> None:
    _state(project, edit(STATED_SO))
    assert fault in find_faults(project)


def test_a_misspelled_key_is_named(project: Path) -> None:
    _state(project, STATED_SO.replace("most = 2", "mots = 2"))
    [fault] = find_faults(project)
    assert fault.startswith("tools/rooms.toml: ")
    assert "rooms.memory.mots" in fault


def test_a_feature_is_read_by_the_kernel_alone_and_an_owner_tells_names_apart(project: Path) -> None:
    _state(project, STATED_SO.replace("{ lesson = 1 }", "{ 'job.lesson' = 1, 'other.lesson' = 0 }"))
    _write(project, {"memory/entry.py": "def of(job):\n    return job.lesson\n"})
    assert find_faults(project) == []


WEB = "[rooms.web]\nmost = 1\nwhy = 'a page'\nneeds = ['memory']\nfiles = ['web.py']\n"


@pytest.fixture
def page(project: Path) -> Path:
    """The package with a feature that needs another one, and states it."""
    _write(project, {"web.py": "from lcp_engine.memory import entry\n"})
    _state(project, STATED_SO + WEB)
    return project


def test_a_feature_may_import_those_that_it_states_to_need(page: Path) -> None:
    assert find_faults(page) == []


@pytest.mark.parametrize(
    "text",
    [
        "from lcp_engine.memory import entry\n",
        "from lcp_engine.memory.entry import Entry\n",
        "import lcp_engine.memory.entry\n",
        "def show(): from lcp_engine.memory.entry import Entry\n",
    ],
)
def test_an_import_between_features_is_stated(page: Path, text: str) -> None:
    _write(page, {"web.py": text})
    _state(page, STATED_SO + WEB.replace("['memory']", "[]"))
    assert find_faults(page) == [
        (
            "src/lcp_engine/web.py:1: web imports memory, which it does not state to need; add it to `needs` in "
            "tools/rooms.toml, or move what both use into the kernel"
        )
    ]


def test_a_need_that_is_stated_is_imported(page: Path) -> None:
    _write(page, {"web.py": "import lcp_engine.loop\n"})
    assert find_faults(page) == [
        "tools/rooms.toml: web states that it needs memory, and imports nothing of it; remove it"
    ]


def test_features_do_not_need_each_other(page: Path) -> None:
    _write(page, {"memory/__init__.py": "import lcp_engine.web\n"})
    circle = STATED_SO.replace("most = 2\n", "most = 3\nneeds = ['web']\n") + WEB
    _state(page, circle)
    fact = "tools/rooms.toml: 2 features need themselves through others"
    assert find_faults(page) == [
        f"{fact}, 0 are allowed; a feature of a circle cannot be removed alone: memory, web"
    ]
    _state(page, circle.replace("in_circles = 0", "in_circles = 2"))
    assert find_faults(page) == []
    _state(page, circle.replace("in_circles = 0", "in_circles = 3"))
    assert find_faults(page) == [f"{fact}, 3 are allowed: lower `in_circles` to 2"]


@pytest.fixture
def history(project: Path) -> Path:
    """The same with one commit, after which a test states something else."""
    _git(project, "init", "--quiet")
    _commit(project, STATED_SO)
    return project


@pytest.mark.parametrize(
    ("edit", "fault"),
    [
        (_replaced("most = 3", "most = 4"), "kernel-loop: `most` is 4, 3 in {commit}; say in a new `why` what for"),
        (_replaced("most = 2", "most = 4"), "memory: `most` is 4, 2 in {commit}; say in a new `why` what for"),
        (
            lambda text: text + "[rooms.web]\nmost = 1\nfiles = []\n",
            "web: `most` is 1, 0 in {commit}; say in a new `why` what for",
        ),
        (_replaced("docstrings = 1", "docstrings = 2"), "docstrings: 2 are stated, 1 in {commit}; that may only fall"),
        (_replaced("in_circles = 0", "in_circles = 1"), "in_circles: 1 are stated, 0 in {commit}; that may only fall"),
        (_replaced("lesson = 1", "lesson = 2"), "reads.lesson: 2 are stated, 1 in {commit}; that may only fall"),
        (
            _replaced("lesson = 1", ""),
            "reads.lesson: it is left out, 1 were stated in {commit}; state them, or 0",
        ),
        (
            _replaced("['loop.py ->", "['__init__.py -> memory/entry.py', 'loop.py ->"),
            "imports: 2 are listed in all rooms, 1 in {commit}; that may only fall",
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("is_committed", [False, True])
def test_no_limit_may_rise_above_an_earlier_one(
    history: Path, edit: Edit, fault: str, is_committed: bool
) -> None:
    commit = _head(history)
    (_commit if is_committed else _state)(history, edit(STATED_SO))
    assert f"tools/rooms.toml: {fault.format(commit=commit)}" in find_faults(history)


def test_a_limit_may_fall(history: Path) -> None:
    _write(history, {"memory/entry.py": "", "loop.py": "import lcp_engine.memory.entry\n"})
    less = STATED_SO.replace("lesson = 1", "lesson = 0").replace("docstrings = 1", "docstrings = 0")
    _commit(history, less.replace("most = 3", "most = 1").replace("most = 2", "most = 0"))
    assert find_faults(history) == []


def test_an_idea_of_the_kernel_is_left_out_with_the_reason(history: Path) -> None:
    left_out = STATED_SO.replace("lesson = 1", "")
    _state(history, left_out.replace(LIMITS, LIMITS + "[kernel_words]\nlesson = 'each job teaches one'\n"))
    assert find_faults(history) == []
    _state(history, STATED_SO.replace(LIMITS, LIMITS + "[kernel_words]\nlesson = 'each job teaches one'\n"))
    (fault,) = find_faults(history)
    assert "`lesson` is in `kernel_words` and in `reads` of a feature" in fault
    _state(history, left_out.replace(LIMITS, LIMITS + "[kernel_words]\nlesson = ''\n"))
    assert "kernel_words.lesson" in str(find_faults(history))


def test_lines_of_code_may_rise_for_a_reason_once(history: Path) -> None:
    why = "why = 'entries have titles'\n"
    _commit(history, STATED_SO.replace("most = 2\n", f"most = 4\n{why}"))
    assert find_faults(history) == []
    commit = _head(history)
    _commit(history, STATED_SO.replace("most = 2\n", f"most = 6\n{why}"))
    assert find_faults(history) == [
        f"tools/rooms.toml: memory: `most` is 6, 4 in {commit}; say in a new `why` what for"
    ]


def test_a_closed_kernel_neither_grows_for_a_reason_nor_opens_again(history: Path) -> None:
    _commit(history, STATED_SO.replace("false", "true"))
    commit = _head(history)
    _commit(history, STATED_SO.replace("most = 3\n", "most = 4\nwhy = 'a loop needs more'\n"))
    assert find_faults(history) == [
        f"tools/rooms.toml: kernel-loop: `most` is 4, 3 in {commit}; the kernel is closed, so keep it there",
        f"tools/rooms.toml: kernel_is_closed: it is false, true in {commit}; leave it true",
    ]


def test_a_clone_compares_as_much_as_it_has(history: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    commit = _head(history)
    _commit(history, STATED_SO.replace("most = 2", "most = 4"))
    whole, shallow = (tmp_path_factory.mktemp(name) for name in ("whole", "shallow"))
    _git(history, "clone", "--quiet", f"file://{history}", str(whole))
    _git(history, "clone", "--quiet", "--depth=1", f"file://{history}", str(shallow))
    assert find_faults(whole) == [
        f"tools/rooms.toml: memory: `most` is 4, 2 in {commit}; say in a new `why` what for"
    ]
    assert find_faults(shallow) == []


def test_without_git_the_limits_hold_as_stated(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(project))
    assert find_faults(project) == []
    _write(project, {"new.py": ""})
    assert len(find_faults(project)) == 1


def test_the_tool_prints_the_faults_and_fails(project: Path) -> None:
    command = [sys.executable, str(TOOL)]
    assert subprocess.run(command, cwd=project, capture_output=True, text=True, check=True).stdout == ""
    _write(project, {"new.py": ""})
    failed = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    assert (failed.returncode, failed.stderr.count("\n")) == (1, 1)
    assert failed.stderr.startswith("src/lcp_engine/new.py is in no room")


def test_the_list_names_each_place(project: Path) -> None:
    command = [sys.executable, str(TOOL), "--list"]
    printed = subprocess.run(
        command, cwd=project, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert printed == [
        "5 lines of code, 3 of them in the kernel",
        "  kernel-loop: 3",
        "  memory: 2",
        "1 imports of features by the kernel, 1 reads",
        "  lesson: src/lcp_engine/loop.py:10",
        "1 docstrings that begin with How, Of, That, What, Whether, Who, Why",
        "  src/lcp_engine/loop.py:6: What runs a job.",
    ]


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (str, "The kernel knows no feature KEPT (1 ignored import)"),
        (_replaced("'loop.py -> memory/entry.py'", ""), "lcp_engine.loop -> lcp_engine.memory.entry (l.1)"),
        (
            _replaced("'loop.py ->", "'loop.py -> memory/__init__.py', 'loop.py ->"),
            "No matches for ignored import lcp_engine.loop -> lcp_engine.memory",
        ),
    ],
    ids=["as listed", "not listed", "listed and gone"],
)
def test_the_kernel_imports_of_features_what_is_listed_and_all_that_is_listed(
    project: Path, edit: Edit, said: str
) -> None:
    _state(project, edit(STATED_SO))
    (project / "pyproject.toml").write_text(
        '[tool.importlinter]\nroot_package = "lcp_engine"\n'
        'contract_types = ["kernel: tools.contracts.KernelContract"]\n'
        '[[tool.importlinter.contracts]]\nname = "The kernel knows no feature"\ntype = "kernel"\n'
    )
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=project,
        env=os.environ | {"PYTHONPATH": f"{project / 'src'}:{PROJECT}", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert said in done.stdout + done.stderr
    assert done.returncode == (0 if "KEPT" in said else 1)


def _head(project: Path) -> str:
    command = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, cwd=project, capture_output=True, text=True, check=True).stdout.strip()
