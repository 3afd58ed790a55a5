"""Entries of memory: limits, tidy tags and files, and terms."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.tables import table

from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.features.memory.entries import (
    MOST_CONTENT,
    MOST_FILES,
    MOST_TAGS,
    MOST_TITLE,
    Entry,
    checked,
    tidy_path,
    words_of,
)

GOOD = Entry(title="Tests", content="They need a database.")


@table(
    ("entry", "said"),
    [
        (replace(GOOD, title=" "), "line 3.title: it is blank; a text is expected"),
        (replace(GOOD, title="a\nb"), "line 3.title: it has a line end; one line is expected"),
        (replace(GOOD, title="a" * 201), f"line 3.title: it has 201 characters; at most {MOST_TITLE} are kept"),
        (replace(GOOD, content=""), "line 3.content: it is blank; a text is expected"),
        (replace(GOOD, content="a" * 8001), f"line 3.content: it has 8,001 characters; at most {MOST_CONTENT:,}"),
        (replace(GOOD, importance=11), "line 3.importance: it is 11; a number from 1, low, to 10, high, is expected"),
        (replace(GOOD, tags=("a" * 51,)), "line 3.tags[0]: it has 51 characters; at most 50 are kept"),
        (replace(GOOD, tags=("a", "b\n.")), "line 3.tags[1]: 'b\\n.' is not a name; printable characters"),
        (replace(GOOD, tags=tuple(map(str, range(21)))), f"line 3.tags: there are 21; at most {MOST_TAGS} are kept"),
        (replace(GOOD, files=("a", "../b")), "line 3.files[1]: '../b' is not a path beneath the root, relative to it"),
        (replace(GOOD, files=("/etc/passwd",)), "line 3.files[0]: '/etc/passwd' is not a path beneath the root"),
        (replace(GOOD, files=tuple(map(str, range(51)))), f"line 3.files: there are 51; at most {MOST_FILES} are kept"),
        (replace(GOOD, related=("7",)), "line 3.related_memories[0]: '7' is not the id of an entry, mem- and a UUID"),
    ],
)  # fmt: skip
def test_what_is_not_kept_is_refused_with_its_place(entry: Entry, said: str) -> None:
    with pytest.raises(LcpError) as refused:
        checked(entry, "line 3")
    assert refused.value.code is ErrorCode.INVALID_ARGUMENT
    assert str(refused.value).startswith(said)


def test_tags_and_files_are_made_tidy() -> None:
    given = replace(GOOD, title=" Tests ", tags=(" a", "a", "b"), files=("./src//a.py", "src\\a.py"))
    assert checked(given) == replace(GOOD, tags=("a", "b"), files=("src/a.py",))
    assert checked(replace(GOOD, tags=())).tags == ("note",)


@table("path", ["", "  ", "..", "a/../..", "/a", ".", "a\nb"])
def test_a_path_out_of_the_root_is_none(path: str) -> None:
    assert tidy_path(path) is None


def test_words_are_the_same_terms_whatever_their_case() -> None:
    assert [*words_of("Read src/App.py, then APP_v2!")] == ["read", "src", "app", "py", "then", "app", "v2"]
    assert [*words_of("Größe")] == [*words_of("GRÖSSE")] != []
    assert all(word.isascii() and word.isalnum() for word in words_of("naïve 数据库 \ud800 x ½ Ⅷ"))
