"""Tell the paths that hold secrets, and those by which git or the engine lives (R5). Pure.

A path is relative to the root, with `/`, and folded: it is meant whatever case it is written in.
"""

from __future__ import annotations

import re

SECRET = re.compile(
    r"""(?:^|/)(?:
        (?:\.ssh|\.aws|\.gnupg)(?:/|$)
      | \.docker/config\.json$
      | \.env(?:rc)?$ | \.env\.(?!(?:example|sample)$)[^/]*$
      | [^/]*\.(?:pem|key|p12)$
      | id_[^/.]+$ | id_(?:rsa|dsa|ecdsa|ed25519)(?:_sk)?\.(?!pub$)[^/]*$
      | [._]netrc$ | \.npmrc$ | \.pypirc$ | \.git-credentials$
    )""",
    re.VERBOSE | re.DOTALL,
)
ENGINE_FILE = re.compile(r"(?:^|/)\.lcp(?:/|$|-[^/]*\.tmp$)")
# Submodules and linked worktrees have a config of their own.
GIT_SECRET = re.compile(r"(?:^|/)\.git/(?:.*/)?config(?:\.worktree)?$", re.DOTALL)
# NTFS: short names, streams after ":", dots and spaces at the end. HFS+: characters that it does not see. From git's
# verify_path: a checkout of what was written here must not become a repository elsewhere.
_GIT_NAME = re.compile(
    r"(?:\.git|git~[0-9]+|\.gitmodules|gitmod~[0-9]+|gi7eba~[0-9]+)[ .]*(?::.*)?", re.DOTALL
)
_UNSEEN = re.compile("[\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]")


def is_git_file(folded: str) -> bool:
    """Whether git would take a part of the path for `.git` or `.gitmodules`, on any file system."""
    if folded.isascii() and "git" not in folded and "gi7eba" not in folded:
        return False
    return any(_GIT_NAME.fullmatch(part) for part in _UNSEEN.sub("", folded).split("/"))
