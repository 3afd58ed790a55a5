"""Spell paths in odd ways under drawn policies, and ask the kernel which file each spelling means."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from lcp_engine.core.policy import Policy, Rule, Verdict
from lcp_engine.features.authoring.run_job import run_job
from lcp_engine.sandbox.root import Root
from lcp_engine.sandbox.system.syscalls import RESOLVE_BENEATH, RESOLVE_NO_MAGICLINKS, has_openat2, opener

FILES = (
    "top.txt",
    "docs/a.txt",
    "docs/sub/b.txt",
    "docs/caf\u00e9.txt",
    "docs/cafe\u0301.txt",
    "DOCS/a.txt",
    "src/c.txt",
    "src/docs/a.txt",
    "src\\c.txt",
    " /a.txt",
    "~/a.txt",
    ".env",
    ".git/config",
    "docs/.env",
    "-",
)
LINKS = {
    "link": "docs",
    "docs/up": "..",
    "out": "../outside",
    "outfile": "../outside/top.txt",
    "env": ".env",
    "src/sub": "../docs/sub",
    "loop": "loop",
    "chain": "link/up/src/sub/../a.txt",
    "docs/git": "../.git",
    "abs": "$ROOT/docs",
    "self": ".",
    "proc": "/proc/self/cwd",
    "top": "docs/../top.txt",
    "docs/over": "sub/../../src",
}
SECRETS = (".env", ".git", "docs/.env")
"""What the default policy denies, for reading or for writing."""
DENIABLE = ("docs", "docs/sub", "docs/a.txt", "src", "src/c.txt", "top.txt", "DOCS")
NEW = "new\n"

_NAMES = sorted({part for path in (*FILES, *LINKS) for part in path.split("/")})
_ODD = (
    "",
    ".",
    "..",
    "...",
    "..\\",
    "\\..",
    " ",
    "docs ",
    "docs.",
    "D0CS",
    "Docs",
    "\uff0e\uff0e",
    "\u2025",
    "%2e%2e",
    "..%2f",
    "\0",
    "\n",
    "C:",
    "//",
    "new.txt",
    "proc",
    "\u202e",
    "doc\u200bs",
    "*",
    "docs/*",
    ".lcp",
    "a" * 256,
    "\x7f",
    "\\\\host",
    "$ROOT",
    "{root}",
)
_NOISE = (
    "",
    "",
    "",
    "",
    "./",
    "/",
    ".//",
    "docs/../",
    "link/../",
    "docs/up/",
    "src/sub/../../",
    "",
    "",
    "",
    "",
)
_KNOWN = (
    *FILES,
    *LINKS,
    "link/a.txt",
    "docs/up/top.txt",
    "src/sub/b.txt",
    "self/docs/a.txt",
    "docs/over/c.txt",
    "docs/git/config",
    "abs/a.txt",
    "docs/new.txt",
    "link/sub/new.txt",
    "self/self/top.txt",
    "proc/top.txt",
    "docs/new/deep.txt",
)


@st.composite
def _near(draw: st.DrawFn) -> str:
    """A spelling of something that is there."""
    noise = st.sampled_from(_NOISE)
    first = draw(st.sampled_from(["", "", "", "", "", "./", "x/../", "../ROOT/"]))
    return first + "/".join(draw(noise) + part for part in draw(st.sampled_from(_KNOWN)).split("/"))


@st.composite
def _wild(draw: st.DrawFn) -> str:
    """A spelling of anything."""
    parts = draw(st.lists(st.one_of(st.sampled_from(_NAMES), st.sampled_from(_ODD)), min_size=1, max_size=6))
    before = draw(st.sampled_from(["", "", "", "/", "./", "$ROOT/", "../ROOT/", "\\"]))
    between, after = (
        draw(st.sampled_from(["/", "/", "//", "/./", "\\"])),
        draw(st.sampled_from(["", "", "/", "/.", "/.."])),
    )
    return before + between.join(parts) + after


_SPELLINGS = st.one_of(_near(), _near(), _wild())
_BASES = st.sampled_from(
    [".", "", "docs", "src", "link", "docs/up", "self", "$ROOT", "$ROOT/docs", "out", "docs/sub/.."]
)
_PARAMS = st.one_of(
    st.fixed_dictionaries({"rel_path": _SPELLINGS}),
    st.fixed_dictionaries({"root": st.one_of(_BASES, _BASES, _SPELLINGS), "rel_path": _SPELLINGS}),
    st.fixed_dictionaries({"path": _SPELLINGS}),
)
_DENIED = st.lists(st.sampled_from(DENIABLE), unique=True, max_size=3)

Params: TypeAlias = Mapping[str, str]
Does: TypeAlias = Callable[[Path, str, Params, Sequence[str], bool], str | None]
"""Reads or writes in a root with places denied, by openat2 or not; what was read or written, None if refused."""


@dataclass
class Tried:
    """How often something was done or refused, and what must not have happened."""

    counts: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)


def by_the_engine(root: Path, kind: str, params: Params, denied: Sequence[str], kernel: bool) -> str | None:
    """A job as a runner executes it."""
    policy = Policy(
        user_rules=[Rule(do=Verdict.DENY, paths=tuple(f"/{place}" for place in denied))] if denied else []
    )
    content = {"content": NEW} if kind == "write_file" else {}
    with Root(root, kernel=kernel) as opened:
        done = run_job(kind, {**params, **content}, opened, policy=policy)
    if done.result is None:
        return None
    return NEW if kind == "write_file" else str(done.result["content"])


def by_a_naive_worker(
    root: Path, kind: str, params: Params, denied: Sequence[str], _: bool = True
) -> str | None:
    """Compares normalized texts, as many programs do: it must be found out."""
    path = os.path.normpath(spelled(root, params))
    if path.startswith("..") or any(
        path == place or path.startswith(f"{place}/") for place in (*denied, *SECRETS)
    ):
        return None
    try:
        if kind == "write_file":
            (root / path).write_text(NEW)
        return (root / path).read_text()
    except (OSError, ValueError):
        return None


def spelled(root: Path, params: Params) -> str:
    """What the params name, relative to the root, as they spell it."""
    text = params["path"] if "path" in params else f"{params.get('root', '.')}/{params['rel_path']}"
    return re.sub(f"^/*{re.escape(str(root))}/+", "", text)


@contextmanager
def scratch() -> Iterator[Path]:
    """A root to spell paths of; what is written through /proc/self/cwd lands beside it."""
    with tempfile.TemporaryDirectory(prefix="lcp-spelled-") as directory, chdir(directory):
        root = Path(directory).resolve() / "ROOT"
        build(root)
        yield root


def build(root: Path) -> None:
    """Each file contains its own path; what lies outside says so."""
    for left in root.parent.iterdir():
        if left.is_dir():
            shutil.rmtree(left)
        else:
            left.unlink()
    for path in FILES:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(f"{path}\n")
    (root.parent / "outside").mkdir()
    (root.parent / "outside" / "top.txt").write_text("OUTSIDE\n")
    for path, target in LINKS.items():
        (root / path).symlink_to(target.replace("$ROOT", str(root)))


@dataclass
class Trial:
    """A root as it is before each job, and what has been noted."""

    does: Does
    root: Path
    before: Mapping[str, str]
    tried: Tried


def try_one(trial: Trial, drawn: Params, denied: Sequence[str], kernel: bool) -> None:
    """Read and write one spelling, and note what the kernel does not agree with."""
    root, tried, before = trial.root, trial.tried, trial.before
    params = {name: value.replace("$ROOT", str(root)) for name, value in drawn.items()}
    for kind in ("read_file", "write_file"):
        meant = by_the_kernel(root, spelled(root, params)) if kind == "read_file" else None
        done = trial.does(root, kind, params, denied, kernel)
        after = everything(root)
        changed = sorted(path for path in {*before, *after} if before.get(path) != after.get(path))
        tried.counts[f"{kind} {'refused' if done is None else 'done'}"] += 1
        faults = (
            _of_read(done, meant, denied)
            if kind == "read_file"
            else _of_write(root, params, done, denied, changed)
        )
        if kind == "read_file" and changed:
            faults.append(f"it changed {changed}")
        tried.faults += [f"{kind} {drawn} with {list(denied)} denied: {fault}" for fault in faults]
        if changed:
            build(root)


def _of_read(done: str | None, meant: str | None, denied: Sequence[str]) -> list[str]:
    if done is None:
        return []
    path = done.rstrip("\n")
    faults = [f"it read {path!r}"] if path == "OUTSIDE" or is_beneath(path, (*denied, *SECRETS)) else []
    return faults if done == meant else [*faults, f"it read {path!r}, the kernel {meant!r}"]


def _of_write(
    root: Path, params: Params, done: str | None, denied: Sequence[str], changed: Sequence[str]
) -> list[str]:
    forbidden = [
        path for path in changed if not path.startswith("ROOT/") or is_beneath(path[5:], (*denied, *SECRETS))
    ]
    faults = [f"it wrote {forbidden}"] if forbidden else []
    if done is None:
        return [*faults, f"it was refused and wrote {changed}"] if changed else faults
    if by_the_kernel(root, spelled(root, params)) != NEW:
        faults.append(f"it wrote {changed}, and the kernel finds something else there")
    return faults


def is_beneath(path: str, places: Sequence[str]) -> bool:
    return any(path == place or path.startswith(f"{place}/") for place in places)


def by_the_kernel(root: Path, path: str) -> str | None:
    """What the kernel reads at a spelling without leaving the root; None if that is not a regular file."""
    if "\0" in path:
        return None
    directory = os.open(root, os.O_RDONLY)
    try:
        descriptor = opener(directory, os.O_RDONLY, RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS)(path)
        with os.fdopen(descriptor, encoding="utf-8") as file:
            return file.read()
    except (OSError, ValueError):
        return None
    finally:
        os.close(directory)


def everything(root: Path) -> dict[str, str]:
    """The content of each file, the target of each link and each directory, in the root and outside."""
    found: dict[str, str] = {}
    for directory, names, files in os.walk(root.parent):
        for name in (*names, *files):
            path = os.path.join(directory, name)  # noqa: PTH118 -- called for each example
            relative = path[len(str(root.parent)) + 1 :]
            if os.path.islink(path):  # noqa: PTH114
                found[relative] = os.readlink(path)  # noqa: PTH115
            elif name in files:
                found[relative] = Path(path).read_text()
    return found


def search(does: Does, examples: int, number: int) -> Tried:
    """Try that many examples in each way to resolve paths, drawn from a seed."""
    tried = Tried()

    @seed(number)
    @settings(
        max_examples=examples,
        database=None,
        deadline=None,
        derandomize=False,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(_PARAMS, _DENIED, st.booleans())
    def try_drawn(params: Params, denied: Sequence[str], kernel: bool) -> None:
        try_one(trial, params, denied, kernel)

    with scratch() as root:
        trial = Trial(does, root, everything(root), tried)
        try_drawn()
    return tried


def attack(seconds: float, number: int) -> bool:
    """Prints what was counted; whether no spelling reached what it must not reach."""
    if not has_openat2():
        print("spellings: openat2 is the oracle, and this kernel has none")
        return True
    examples = max(300, int(seconds * 500))
    tried, control = search(by_the_engine, examples, number), search(by_a_naive_worker, 300, number)
    counted = ", ".join(f"{count:,} {what}" for what, count in sorted(tried.counts.items()))
    print(
        f"spellings: {tried.counts.total():,} jobs ({counted}), {len(tried.faults)} reached what they must not; "
        f"{len(control.faults)} of a naive worker's {control.counts.total():,} did"
    )
    for fault in tried.faults[:20]:
        print(f"  <- {fault}")
    return not tried.faults and bool(control.faults)
