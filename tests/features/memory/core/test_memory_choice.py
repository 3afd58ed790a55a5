"""What a turn is shown of a memory: what concerns it most, within the budget, the same each time."""

from __future__ import annotations

from collections.abc import Sequence

from lcp_engine.features.memory.choice import (
    MOST_MATCHES,
    MOST_SHOWN,
    Cue,
    Found,
    Match,
    choose,
    cues_of,
    shown_part,
)
from lcp_engine.features.memory.entries import file_term, tag_term

DAY = 86_400_000_000
NOW = 1_000 * DAY


def match(number: int, *, importance: int = 5, days: int = 100, size: int = 100) -> Match:
    return Match(number, importance, NOW - days * DAY, size)


def found(
    by_cue: dict[str, Sequence[Match]], important: Sequence[Match] = (), newest: Sequence[Match] = ()
) -> Found:
    return Found(by_cue, important, newest)


def test_a_file_counts_more_than_a_tag_and_a_tag_more_than_a_word() -> None:
    cues = {"w": Cue.WORD, "t": Cue.TAG, "f": Cue.FILE}
    given = found({"w": [match(1, importance=10, days=0)], "t": [match(2)], "f": [match(3)]})
    assert choose(given, cues, now=NOW, characters=10_000) == [3, 1, 2]
    given = found({"w": [match(1)], "t": [match(2)], "f": [match(3)]})
    assert choose(given, cues, now=NOW, characters=10_000) == [3, 2, 1]


def test_importance_and_then_age_decide_between_equals_and_the_number_at_last() -> None:
    many = [match(1, importance=6), match(2, days=0), match(3), match(4)]
    assert choose(found({"w": many}), {"w": Cue.WORD}, now=NOW, characters=10_000) == [2, 1, 4, 3]


def test_what_shares_only_a_common_word_is_not_shown() -> None:
    common = [match(number) for number in range(MOST_MATCHES)]
    assert choose(found({"w": common}), {"w": Cue.WORD}, now=NOW, characters=10_000) == []
    both = found({"w": common, "v": [match(7)]})
    assert choose(both, {"w": Cue.WORD, "v": Cue.WORD}, now=NOW, characters=10_000) == [7]


def test_the_important_and_the_newest_are_shown_for_their_own_sake() -> None:
    given = found({}, important=[match(1, importance=9)], newest=[match(9)])
    assert choose(given, {}, now=NOW, characters=10_000) == [1, 9]


def test_the_budget_is_kept_and_what_fits_behind_something_large_is_taken() -> None:
    given = found(
        {}, important=[match(1, importance=9, size=900), match(2, importance=8, size=900), match(3)]
    )
    assert choose(given, {}, now=NOW, characters=1_200) == [1, 3]
    many = found({}, important=[match(number, size=1) for number in range(100)])
    assert len(choose(many, {}, now=NOW, characters=10**6)) == MOST_SHOWN


def test_a_turn_looks_for_its_files_tags_and_longest_words() -> None:
    cues = cues_of(["Fix src/app.py, the Database of ./docs/a.md!"], ["lib/b.c", "../out"], ["Tests"])
    files = {term for term, cue in cues.items() if cue is Cue.FILE}
    assert files == {file_term("src/app.py"), file_term("docs/a.md"), file_term("lib/b.c")}
    assert cues[tag_term("tests")] is Cue.TAG
    assert [term for term, cue in cues.items() if cue is Cue.WORD] == ["database", "docs"]


def test_a_text_of_any_size_gives_few_cues() -> None:
    cues = cues_of([" ".join(f"word{number} a/{number}.py" for number in range(100_000))], [], [])
    assert len(cues) == 48


def test_a_long_entry_is_cut_and_what_is_left_out_is_counted() -> None:
    assert shown_part("a" * 1_600) == ("a" * 1_500, 100)
    assert shown_part("a") == ("a", 0)
