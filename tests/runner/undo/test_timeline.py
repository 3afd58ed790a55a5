"""Which changes of a file are in effect follows from the order in which they were made and taken back."""

from __future__ import annotations

import pytest

from lcp_engine.core.paths.change_history import Effect, timeline

FILE = "/root/a"


def after(*undoes: int | None) -> tuple[list[int], dict[int, int]]:
    """What stands after effects 1, 2, …, and by which effect the others are undone."""
    made = timeline(Effect(n, 1, 100 + n, FILE, undone) for n, undone in enumerate(undoes, start=1))
    return [one.id for one in made.standing(FILE)], {n: by.id for n, by in made.undone_by.items()}


@pytest.mark.parametrize(
    ("effects", "standing", "undone"),
    [
        ((None, None), [1, 2], {}),
        ((None, None, 2), [1], {2: 3}),
        ((None, None, 1), [], {1: 3, 2: 3}),
        ((None, None, 1, 3), [1, 2], {3: 4}),
        ((None, None, 1, 3, 4), [], {1: 5, 2: 5, 4: 5}),
        ((None, None, 1, 3, 1), [], {1: 5, 2: 5, 3: 4}),
        ((None, 1, None), [3], {1: 2}),
        ((None, None, 2, None, 4, 1), [], {1: 6, 2: 3, 4: 5}),
    ],
)
def test_an_undo_leaves_what_stood_before_the_change_that_it_names(
    effects: tuple[int | None, ...], standing: list[int], undone: dict[int, int]
) -> None:
    assert after(*effects) == (standing, undone)


def test_files_have_histories_of_their_own() -> None:
    made = timeline([Effect(1, 1, 1, "/a", None), Effect(2, 1, 2, "/b", None), Effect(3, 1, 3, "/a", 1)])
    assert (made.standing("/a"), [one.id for one in made.standing("/b")]) == ([], [2])
    assert made.last["/a"].id == 3
