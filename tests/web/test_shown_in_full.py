"""What people decide on is on the page to the last character, and no form decides by accident."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from unicodedata import normalize

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup
from pydantic import BaseModel, JsonValue
from rich.console import Console
from starlette.testclient import TestClient
from tests.core.test_safe_text import ODD
from tests.web.conftest import ADDRESS, House

from lcp_engine import Worker
from lcp_engine.api.engine import Engine
from lcp_engine.api.pages import JsonObject
from lcp_engine.changes.show import Forecast
from lcp_engine.changes.unified_diff import Diff, diff_bytes
from lcp_engine.cli.commands.changes import show_diffs
from lcp_engine.inbox import Awaits, HeldJob
from lcp_engine.web.access import Secrets
from lcp_engine.web.app import make_app
from lcp_engine.web.context import PACKAGE, PageContext, make_templates
from lcp_engine.web.diff_view import whole
from lcp_engine.web.pages.inbox import Row, shown_or_named
from lcp_engine.workers.base import Context, FileEffect

BEFORE = b"one\ntwo  \n\tthree\n"
TEXTS = st.text(
    st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from(ODD.replace("\ud800", "") + "\n\t "))
)


class Visible(HTMLParser):
    """The text of an element as a browser shows it with `white-space: pre-wrap`."""

    def __init__(self) -> None:
        super().__init__()
        self.text = ""

    def handle_data(self, data: str) -> None:
        self.text += data


def _on_page(diff: Diff) -> str:
    template = '{% import "decide.html" as decide %}{{ decide.diff(diff, "", "x", true) }}'
    reader = Visible()
    reader.feed(make_templates().from_string(template).render(diff=whole(diff)))
    return reader.text


def _on_terminal(diff: Diff, *, is_terminal: bool = False) -> str:
    stream = io.StringIO()
    console = Console(
        file=stream, markup=False, emoji=False, highlight=False, soft_wrap=True, width=40, force_terminal=is_terminal,
        no_color=True,
    )  # fmt: skip
    show_diffs(console, [diff])
    return re.sub("\x1b\\[[0-9;]*m", "", stream.getvalue())


@pytest.mark.parametrize("show", [_on_page, _on_terminal, lambda diff: _on_terminal(diff, is_terminal=True)])
@given(TEXTS, TEXTS)
def test_two_changes_of_a_file_are_never_shown_alike(show: object, one: str, other: str) -> None:
    assert callable(show)
    for before in (None, BEFORE):
        shown = [normalize("NFC", show(diff_bytes("f", before, text.encode()))) for text in (one, other)]
        assert (shown[0] == shown[1]) == (one == other)


@given(TEXTS.filter(lambda text: not {"\r", "\0"} & set(text) and not text.startswith("\ufeff")))
def test_a_change_can_be_read_back_from_its_page(text: str) -> None:
    diff = diff_bytes("f", None, text.encode())
    lines = [line.text[1:] for line in whole(diff).lines if line.css_class == "add"]
    read = "\n".join(lines).replace("\u21e5\t", "\t")
    assert re.sub(r"<U\+([0-9A-F]{4,6})>", lambda found: chr(int(found[1], 16)), read) == text.removesuffix(
        "\n"
    )


def test_a_long_line_on_a_terminal_cannot_look_like_two() -> None:
    shown = _on_terminal(diff_bytes("f", None, b"a" + b" " * 37 + b"-gone\n"), is_terminal=True)
    rows = shown.splitlines()
    assert rows[-2:] == [f"+a{' ' * 37}", "\u00a6-gone"]


def test_what_was_hidden_in_variation_selectors_is_seen(house: House) -> None:
    payload = "".join(chr(0xE0100 + byte) for byte in b"require('child_process')")
    job_id = house.hold("run.js", f"run('{payload}')\n")
    for path in (
        "/inbox",
        f"/jobs/{job_id}",
        f"/jobs/{job_id}/diff",
        f"/jobs/{job_id}/diff.txt",
        "/inbox/all",
    ):
        answer = house.get(path)
        assert "run('')" not in answer.words, path
        assert "U+E0172" in answer.text, path
        assert not re.search("[\U000e0100-\U000e01ef]", answer.text), path


# -- paths

SPELLINGS: list[tuple[dict[str, JsonValue], str]] = [
    (
        {"rel_path": "docs/././././././././././././././../.github/workflows/ci.yml"},
        ".github/workflows/ci.yml",
    ),
    ({"root": ".github/workflows", "rel_path": "README.md"}, ".github/workflows/README.md"),
    ({"rel_path": "a/" * 60 + "deep.md"}, "a/" * 60 + "deep.md"),
]


@pytest.mark.parametrize(("params", "path"), SPELLINGS)
@pytest.mark.parametrize("content", ["x\n", "x\n" * 40_000], ids=["small", "large"])
def test_lists_show_the_whole_path_that_params_resolve_to(
    house: House, params: dict[str, JsonValue], path: str, content: str
) -> None:
    house.run(
        house.ask({"kind": "write_file", "name": "README.md", "params": {**params, "content": content}}),
        house.complete,
    )
    (job,) = house.engine.jobs(states=["held"])
    assert house.engine.subject(job) == path
    for address in (
        "/inbox", "/inbox/all", f"/jobs/{job.id}", "/jobs", "/missions/1", "/missions/1/timeline", "/missions/1/report",
        f"/jobs/{job.id}/policy",
    ):  # fmt: skip
        assert path in house.get(address).words, address


def test_an_absolute_path_is_shown_relative_to_the_root(house: House) -> None:
    params: dict[str, JsonValue] = {"path": f"{house.root}/docs/../x.md", "content": "x"}
    house.run(house.ask({"kind": "write_file", "params": params}), house.complete)
    (job,) = house.engine.jobs(states=["held"])
    assert house.engine.subject(job) == "x.md"


# -- kinds of which nothing can be shown beforehand


class Deploy(BaseModel):
    to: str


class Deployed(BaseModel):
    ok: bool = True


DEPLOY = Worker("deploy", Deploy, Deployed, lambda params, context: Deployed()).for_any_params()
LOOK = Worker(
    "look", Deploy, Deployed, lambda params, context: Deployed(), has_effects=False
).for_any_params()


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[House]:
    """A page over an engine with two more kinds: `deploy` changes something, `look` does not; a rule holds both."""
    root = tmp_path / "root"
    root.mkdir()
    keys = Secrets()
    with Engine(f"sqlite:///{tmp_path / 'lcp.db'}", workers=(DEPLOY, LOOK)) as engine:
        app = make_app(PageContext(engine, make_templates(), keys.csrf), keys, ADDRESS)
        with TestClient(app, base_url=House.home) as browser:
            browser.get("/", params={"token": keys.token})
            yield House(engine, root, app, keys, browser)


def _hold_both(shop: House, to: str = "production") -> tuple[int, int]:
    policy: JsonValue = [{"kinds": ["deploy", "look"], "do": "hold"}]
    shop.run(shop.ask(shop.job("deploy", to=to), shop.job("look", to=to)), shop.complete, policy=policy)
    first, second = (job.id for job in shop.engine.jobs(states=["held"]))
    return first, second


def test_what_cannot_be_told_beforehand_is_said_wherever_it_is_decided_on(shop: House) -> None:
    deploy, look = _hold_both(shop)
    assert shop.engine.look(deploy).forecast is Forecast.UNKNOWN
    assert shop.engine.look(look).forecast is Forecast.NOTHING
    for path in ("/inbox", "/inbox/all"):
        assert shop.get(path).words.count("cannot be told beforehand") == 1, path
    for path, is_said in (
        (f"/jobs/{deploy}", True),
        (f"/jobs/{deploy}/diff", True),
        (f"/jobs/{look}", False),
    ):
        assert ("cannot be told beforehand" in shop.get(path).words) is is_said, path
    assert "1 job was approved." in shop.post("/inbox", {"job": str(deploy), "decision": "approve",
                                              **shop.shown("/inbox", f"shown.{deploy}")}).words  # fmt: skip


def test_params_that_a_list_has_no_room_for_cannot_be_approved_there(shop: House) -> None:
    deploy, _ = _hold_both(shop, "production " * 1000)
    assert f'action="/jobs/{deploy}/approve"' not in shop.get("/inbox").text
    assert f'name="shown.{deploy}"' not in shop.get("/inbox/all").text
    assert shop.post("/inbox", {"job": str(deploy), "decision": "approve"}).status == 409
    assert "Approved" in shop.approve(deploy).words


def test_what_a_kind_would_make_of_a_file_is_bound_as_well(tmp_path: Path) -> None:
    """A preview may depend on more than the params and the file that it changes."""
    source = tmp_path / "source"
    source.write_text("harmless\n")

    def copy(params: Deploy, context: Context) -> FileEffect:
        return FileEffect(params.to, source.read_text(), "overwrite", lambda applied: Deployed())

    worker = Worker("copy", Deploy, Deployed, copy, preview=copy).for_any_params()
    (tmp_path / "root").mkdir()
    with Engine(f"sqlite:///{tmp_path / 'lcp.db'}", workers=(worker,)) as engine:
        planner: JsonValue = {
            "type": "script",
            "replies": [House.ask(House.job("copy", to="x")), House.complete],
        }
        engine.launch({"goal": "Copy.", "planner": planner}, root=tmp_path / "root")
        engine.work(until_idle=True)
        (job,) = engine.jobs(states=["held"])
        look = engine.look(job.id)
        source.write_text("harmful\n")
        with pytest.raises(Exception, match="is not what was shown"):
            engine.approve(job.id, shown=look.sight)
        assert engine.approve(job.id, shown=engine.look(job.id).sight)


def test_a_card_that_fails_names_its_job(caplog: pytest.LogCaptureFixture) -> None:
    def card(row: object) -> Markup:
        raise ZeroDivisionError(row)

    job: JsonObject = {"id": 7, "kind": "<b>odd"}
    held = HeldJob(job, "", Awaits.APPROVAL, frozenset(), None, has_ended=False)
    shown = shown_or_named(card, Row(held, None, "", ""))
    assert '<a href="/jobs/7">&lt;b&gt;odd job 7</a>' in shown
    assert "job 7 cannot be shown in a list" in caplog.text


# -- forms

# In a textarea Enter begins a new line.
_TYPED = re.compile(r'<input(?![^>]*type="(?:hidden|checkbox|radio)")')


def test_enter_in_a_field_never_approves(house: House) -> None:
    """Enter in a field presses the first button of its form."""
    job_id = house.hold("docs/x.md", "x\n")
    house.run(house.ask(house.job("ask_user", question="Which?")), house.complete)
    found = 0
    for path in (
        "/inbox", "/inbox/all", f"/jobs/{job_id}", f"/jobs/{job_id}/edit", f"/jobs/{job_id}/diff", "/launch",
        "/missions/1", "/missions/2", f"/jobs/{job_id + 3}", f"/jobs/{job_id}/policy",
    ):  # fmt: skip
        text = house.get(path).text
        for form in re.findall(r"<form\b.*?</form>", text, re.DOTALL):
            buttons = re.findall(r"<button\b(?![^>]*type=\"button\")[^>]*>(.*?)</button>", form, re.DOTALL)
            found += bool(buttons)
            if _TYPED.search(form) and 'method="post"' in form:
                assert buttons, path
                assert not re.search("approve", buttons[0], re.IGNORECASE), (path, buttons)
    assert found > 8


def test_no_form_of_a_template_has_a_first_button_that_approves() -> None:
    for file in (PACKAGE / "templates").glob("*.html"):
        for form in re.findall(r"<form\b.*?</form>", file.read_text(), re.DOTALL):
            first = re.search(r"<button\b.*?</button>", form, re.DOTALL)
            if first and _TYPED.search(form):
                assert not re.search("approve", first[0], re.IGNORECASE), file.name
