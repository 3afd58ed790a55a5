"""The quick look at a path never passes what the slow one finds to be a secret."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from lcp_engine.core.paths import secret_files
from lcp_engine.core.paths.secret_files import is_secret, is_source

PATTERNS = {name: value for name, value in vars(secret_files).items() if isinstance(value, re.Pattern)}
WORDS = sorted(
    {word for pattern in PATTERNS.values() for word in re.findall(r"[a-z0-9_-]{2,}", pattern.pattern)}
)
SUFFIXES = sorted(set(WORDS) | {"c", "h", "r", "py", "md", "js", "jsx", "mjs", "cpp"})


def slow(path: str) -> bool:
    return secret_files._is_secret(path)


def test_no_word_of_the_patterns_makes_a_secret_of_a_source_file() -> None:
    names = [f"{word}.{suffix}" for word in WORDS for suffix in SUFFIXES]
    places = [
        f"{outer}/{inner}/{name}" for outer in WORDS for inner in WORDS for name in ("config.py", "auth.md")
    ]
    sources = [path for path in [*names, *places] if is_source(path)]
    assert len(sources) > 10_000
    assert [path for path in sources if slow(path)] == []


@given(st.from_regex(PATTERNS["_SOURCE"], fullmatch=True))
def test_no_source_file_is_a_secret(path: str) -> None:
    assert not is_source(path) or not slow(path)


@given(
    st.sampled_from(["_NAME", "_ALWAYS", "_DIRECTORY", "_PLACE", "_BACKED_UP"]).flatmap(
        lambda name: st.from_regex(PATTERNS[name])
    )
)
def test_what_a_pattern_of_secrets_matches_is_judged_as_without_the_quick_look(path: str) -> None:
    assert is_secret(path) is slow(path)


@table(
    "path",
    [
        ".venv/lib/python3.13/site-packages/pip/_vendor/certifi/cacert.pem",
        "usr/lib/python3/dist-packages/certifi/cacert.pem",
        "node_modules/@scope/grpc/etc/roots.pem",
        "vendor/composer/ca-bundle/res/cacert.pem",
        "vendor/bundle/ruby/3.1.0/gems/some-1.2/lib/cacert.pem",
    ],
)
def test_certificates_of_authorities_in_packages_are_no_secret(path: str) -> None:
    assert not is_secret(path)
    above, _, _ = path.rpartition("/")
    others = (
        path.rpartition("/")[2],
        f"certs/{path.rpartition('/')[2]}",
        f"{above}/own.pem",
        f"{above}/cakey.pem",
    )
    hidden = (
        f"{above}/.ssh/cacert.pem",
        f"{above}/../cacert.pem",
        f"{path}.key",
        f"{above}/cacert.pem/own.key",
    )
    assert [one for one in (*others, *hidden) if not is_secret(one)] == []
