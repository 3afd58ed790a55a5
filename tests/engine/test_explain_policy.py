"""An explanation and a ruling come from one walk, and nobody but the user lifts a denial."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lcp_engine.core.policy import Policy, Rule, Verdict

AUTO, HOLD, DENY = Verdict.AUTO, Verdict.HOLD, Verdict.DENY
ORDER = [AUTO, HOLD, DENY]
ENV = ".env"
PATHS = [
    "a.md",
    "docs/a.md",
    "DOCS/a.md",
    ".env",
    ".ENV",
    "sub/.env",
    ".git/config",
    ".git/HEAD",
    ".lcp/x",
    "",
]
_RULES = st.lists(
    st.builds(
        Rule,
        kinds=st.sampled_from([("*",), ("write_file",), ("read_file", "list_files")]),
        paths=st.sampled_from(
            [None, ("docs/**",), (".env",), (".ENV",), ("**", "!docs/**"), (".git/**",), ("*.md",)]
        ),
        do=st.sampled_from(Verdict),
        final=st.booleans(),
    ),
    max_size=4,
)
_KINDS = st.sampled_from(
    [("write_file", True, True), ("read_file", False, False), ("list_files", False, False)]
)


@given(_RULES, _RULES, _KINDS, st.lists(st.sampled_from(PATHS[:-1]), max_size=3))
def test_an_explanation_comes_to_the_verdict_of_the_evaluation(
    mission: list[Rule], user: list[Rule], kind: tuple[str, bool, bool], paths: list[str]
) -> None:
    policy = Policy(mission, user)
    name, effects, writes = kind
    ruling = policy.judge(name, has_effects=effects, writes=writes, paths=paths)
    explained = policy.explain(name, has_effects=effects, writes=writes, paths=paths)
    assert max((one.ruling for one in explained), key=lambda one: ORDER.index(one.verdict)) == ruling
    judge = policy.for_kind(name, has_effects=effects, writes=writes)
    for one in explained:
        assert one.ruling == judge(one.path)
        (decided,) = [looked for looked in one.looked if looked.decided]
        assert (decided.rule, decided.does) == (one.ruling.reason.text, one.ruling.verdict)
        assert decided.matches_kind
        assert decided.matches_path


@given(_RULES, _RULES, _KINDS, st.sampled_from(PATHS))
def test_what_the_default_denies_is_lifted_by_the_users_exact_path_alone(
    mission: list[Rule], user: list[Rule], kind: tuple[str, bool, bool], path: str
) -> None:
    name, effects, writes = kind
    judge = {"has_effects": effects, "writes": writes}
    if Policy().for_kind(name, **judge)(path).verdict is not DENY:
        return
    if Policy(mission, user).for_kind(name, **judge)(path).verdict is not DENY:
        git = (".git/**",)
        named = {".env": (ENV,), ".ENV": (".ENV",), "sub/.env": (ENV,), ".git/config": git, ".git/HEAD": git}
        lifting = [named.get(path), ("**", "!docs/**")]
        assert any(rule.paths in lifting and rule.do is not DENY for rule in user)


@pytest.mark.parametrize(("do", "final"), [*product([AUTO, HOLD], [False, True])])
def test_a_rule_for_one_spelling_does_not_lift_the_denial_of_another(do: Verdict, final: bool) -> None:
    policy = Policy(user_rules=[Rule(paths=(ENV,), do=do, final=final)])
    for writes in (False, True):
        judge = policy.for_kind("any", has_effects=writes, writes=writes)
        assert judge(".env").verdict is do
        assert judge(".ENV").verdict is DENY


def test_a_final_rule_for_everything_lifts_no_denial() -> None:
    policy = Policy(user_rules=[Rule(do=AUTO, final=True), Rule(do=HOLD, final=True)])
    assert policy.for_kind("read_file", has_effects=False, writes=False)(".env").verdict is DENY


def test_an_explanation_lists_rules_in_the_order_of_precedence() -> None:
    policy = Policy(
        [Rule(kinds=("read_file",), do=AUTO), Rule(paths=("docs/**",), do=HOLD)],
        [Rule(do=DENY), Rule(paths=("src/**",), do=HOLD, final=True)],
    )
    (one,) = policy.explain("write_file", has_effects=True, writes=True, paths=("a.md",))
    seen = [
        (looked.origin, looked.matches_kind, looked.matches_path, looked.decided) for looked in one.looked
    ]
    assert seen == [
        ("user, final", True, False, False),
        ("default denials", True, False, False),
        ("mission", False, None, False),
        ("mission", True, False, False),
        ("user", True, True, True),
    ]
