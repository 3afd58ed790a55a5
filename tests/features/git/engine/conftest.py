"""A root that is a repository."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.features.git.engine.repositories import git

if TYPE_CHECKING:
    from pathlib import Path

    from tests.engine.conftest import Lab


@pytest.fixture
def root(lab: Lab) -> Path:
    """The root, a repository with one commit, whose settings would run programs that leave a file `ran`."""
    git(lab.root, "init", "-q", "-b", "main")
    for key, value in (("user.name", "Ada"), ("user.email", "ada@example.org")):
        git(lab.root, "config", key, value)
    (lab.root / "a.md").write_text("a\n")
    (lab.root / ".gitignore").write_text("*.log\n")
    git(lab.root, "add", ".")
    git(lab.root, "commit", "-qm", "Begin")
    evil = lab.root / ".git" / "evil"
    evil.write_text(f"#!/bin/sh\ntouch {lab.root}/.git/ran\nexit 1\n")
    evil.chmod(0o755)
    for key in (
        "core.fsmonitor",
        "gpg.program",
        "core.sshCommand",
        "filter.x.clean",
        "core.editor",
        "core.pager",
    ):
        git(lab.root, "config", key, str(evil))
    git(lab.root, "config", "commit.gpgSign", "true")
    for name in (
        "pre-commit",
        "commit-msg",
        "post-commit",
        "reference-transaction",
        "post-index-change",
        "post-checkout",
    ):
        (lab.root / ".git" / "hooks" / name).write_text(evil.read_text())
        (lab.root / ".git" / "hooks" / name).chmod(0o755)
    return lab.root
