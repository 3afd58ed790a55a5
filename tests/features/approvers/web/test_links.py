"""A signed link decides its one job, as it was when it was made, once; opening it decides nothing."""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Iterator
from datetime import timedelta
from html import unescape
from pathlib import Path

import pytest
from pydantic import JsonValue
from starlette.testclient import TestClient
from tests.patience import PATIENCE_SECONDS, join
from tests.web.conftest import ADDRESS, HOME, Answer, House

from lcp_engine import Engine, LcpError
from lcp_engine.clock import SECOND, Micros
from lcp_engine.errors import ErrorCode
from lcp_engine.features.approvers.rules import hash_of
from lcp_engine.features.approvers.settings import ApproverSettings, SignedLinks
from lcp_engine.store.people import Sight
from lcp_engine.web.access import Secrets
from lcp_engine.web.app import make_app
from lcp_engine.web.context import PageContext, make_templates

SECRET = "a secret of the tests, long enough"
START: Micros = 1_795_000_000 * SECOND
CONTENT = "one\ntwo\n"


class Afar:
    """A page with links, whose time a test sets, and a browser that has no access to it."""

    def __init__(self, directory: Path, approvers: dict[str, str] | None = None) -> None:
        self.now = START
        root = directory / "root"
        root.mkdir()
        (root / "a.md").write_text("# a\n")
        links = SignedLinks(url=HOME, secret_env="LINK_SECRET")
        engine = Engine(
            f"sqlite:///{directory / 'lcp.db'}", clock=lambda: self.now, links=links, approvers=approvers
        )
        keys = Secrets()
        app = make_app(PageContext(engine, make_templates(), keys.csrf), keys, ADDRESS)
        self.house = House(engine, root, app, keys, TestClient(app, base_url=HOME))
        self.engine = engine
        self.stranger = self.house.stranger()

    def link(self, job: int, *, expires: timedelta | None = None, person: str | None = None) -> str:
        return self.engine.links.make(job, expires=expires, person=person).removeprefix(HOME)

    def get(self, link: str) -> Answer:
        return House._answer(self.stranger.get(link))

    def post(self, link: str, **fields: str) -> Answer:
        return House._answer(self.stranger.post(link, data=fields, headers={"Origin": HOME}))

    def approve(self, link: str, page: Answer | None = None, key: str = "") -> Answer:
        """Approve what a page of the link has shown; by default a page that is opened now."""
        found = re.search(r'name="shown" value="([^"]+)"', (page or self.get(link)).text)
        assert found is not None
        return self.post(link, decision="approve", shown=unescape(found[1]), key=key)

    def state(self, job: int) -> str:
        return self.engine.job(job).state

    def decisions(self, job: int) -> list[JsonValue]:
        mission = self.engine.job(job).mission_id
        found = self.engine.events(mission, job_id=job, event="decided")
        return [[data["decision"], data["by"]] for event in found if isinstance(data := event["data"], dict)]


@pytest.fixture
def afar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Afar]:
    monkeypatch.setenv("LINK_SECRET", SECRET)
    made = Afar(tmp_path)
    yield made
    made.engine.close()


def test_a_link_shows_its_job_without_access_and_nothing_else(afar: Afar) -> None:
    job = afar.house.hold("a.md", CONTENT)
    link = afar.link(job)
    page = afar.get(link)
    assert page.status == 200
    for told in ("write_file", "a.md", "+one", "+two", "Find out.", "Look around.", "wait for a person"):
        assert told in page.words
    assert set(re.findall(r'(?:href|src|action)="([^"]+)"', page.text)) == {
        "/static/icon.svg", "/static/page.css", "/static/decide.js",
    }  # fmt: skip
    assert page.headers["cache-control"] == "no-store"
    for other in ("/", "/inbox", f"/jobs/{job}", f"{link}/x", "/d", "/d/", f"/d/../jobs/{job}"):
        assert afar.get(other).status in (401, 404)


def test_opening_a_link_decides_nothing_however_often(afar: Afar) -> None:
    job = afar.house.hold("a.md", CONTENT)
    link = afar.link(job)
    for method in ("GET", "HEAD", "GET"):
        assert afar.stranger.request(method, link).status_code == 200
    for method in ("PUT", "DELETE", "OPTIONS"):
        assert afar.stranger.request(method, link).status_code == 405
    assert (afar.state(job), afar.decisions(job)) == ("held", [])


def test_a_link_approves_its_job_once(afar: Afar) -> None:
    job = afar.house.hold("a.md", CONTENT)
    link = afar.link(job)
    page = afar.get(link)
    done = afar.approve(link, page)
    assert (done.status, afar.state(job)) == (200, "queued")
    assert "Approved. A runner will execute it. This link decides nothing more." in done.words
    for again in (afar.get(link), afar.approve(link, page), afar.post(link, decision="reject", reason="no")):
        assert again.status == 410
        assert (
            f"it was used at 2026-11-18T11:06:40.000000+00:00: a signed link approved job {job}"
            in again.words
        )
    assert afar.decisions(job) == [["approve", "a signed link"]]
    afar.house.work()
    assert (afar.house.root / "a.md").read_text() == CONTENT


def test_a_link_rejects_its_job_with_a_reason(afar: Afar) -> None:
    job = afar.house.hold("a.md", CONTENT)
    link = afar.link(job)
    blank = afar.post(link, decision="reject", reason="  ")
    assert (blank.status, afar.state(job)) == (422, "held")
    assert "A rejection needs a reason" in blank.words
    done = afar.post(link, decision="reject", reason="not that one")
    assert (done.status, afar.state(job)) == (200, "rejected")
    assert "a signed link rejected job" in afar.get(link).words


def test_an_expired_link_decides_nothing(afar: Afar) -> None:
    job = afar.house.hold("a.md", CONTENT)
    link = afar.link(job, expires=timedelta(hours=1))
    page = afar.get(link)
    afar.now += 3600 * SECOND
    for late in (afar.get(link), afar.approve(link, page), afar.post(link, decision="reject", reason="no")):
        assert late.status == 410
        assert "This link decides nothing: it has expired at 2026-11-18T12:06:40" in late.words
    assert afar.state(job) == "held"


def edited(link: str) -> Iterator[str]:
    payload, signature = link.removeprefix("/d/").split(".")
    said = json.loads(base64.urlsafe_b64decode(payload + "=="))
    for place, other in ((0, said[0] + 1), (4, said[4] + 86_400), (5, "anna"), (2, None), (6, "req-0")):
        changed = [*said[:place], other, *said[place + 1 :]]
        text = json.dumps(changed, separators=(",", ":"))
        yield f"{base64.urlsafe_b64encode(text.encode()).decode().rstrip('=')}.{signature}"
    yield f"{payload}.{'A' * len(signature)}"
    yield f"{payload}.{signature}A"
    yield f"{payload}.{signature}="
    yield f"{payload}."
    yield payload
    yield f".{signature}"
    yield "é.ü"
    yield "A" * 10_000


def test_an_edited_link_decides_nothing(afar: Afar) -> None:
    first, second = afar.house.hold("a.md", CONTENT), afar.house.hold("b.md", CONTENT)
    link = afar.link(first)
    page = afar.get(link)
    for other in edited(link):
        for refused in (afar.get(f"/d/{other}"), afar.approve(f"/d/{other}", page)):
            assert refused.status == 403
            assert "it is not as it was signed, or was signed with another secret" in refused.words
    assert {afar.state(first), afar.state(second)} == {"held"}


def test_a_link_of_another_secret_decides_nothing(afar: Afar, monkeypatch: pytest.MonkeyPatch) -> None:
    link = afar.link(afar.house.hold("a.md", CONTENT))
    monkeypatch.setenv("LINK_SECRET", f"{SECRET}!")
    assert afar.get(link).status == 403


def test_a_link_of_another_database_decides_nothing(afar: Afar, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = Afar(tmp_path / "other")
    job = afar.house.hold("a.md", CONTENT)
    assert other.house.hold("a.md", CONTENT) == job
    link = other.link(job)
    page = other.get(link)
    for refused in (
        afar.get(link),
        afar.approve(link, page),
        afar.post(link, decision="reject", reason="no"),
    ):
        assert refused.status == 403
        assert "it was made for a job of another database" in refused.words
    assert afar.state(job) == "held"
    assert other.approve(link, page).status == 200
    other.engine.close()


def test_a_link_is_bound_to_the_file_as_it_was(afar: Afar) -> None:
    job = afar.house.hold("a.md", CONTENT)
    link = afar.link(job)
    page = afar.get(link)
    (afar.house.root / "a.md").write_text("of another program\n")
    rejected = afar.post(link, decision="reject", reason="no")
    for late in (afar.get(link), afar.approve(link, page), rejected):
        assert late.status == 409
        assert (
            f"Job {job} is not what it was when this link was made: 'a.md' has been changed since"
            in late.words
        )
    assert afar.state(job) == "held"


def test_without_javascript_the_page_of_a_link_states_files_and_lines_and_asks_for_the_token_again(
    named: Afar,
) -> None:
    job = named.house.hold("a.md", CONTENT)
    link = named.link(job, person="anna")
    page = named.get(link)
    form = page.text.partition("</form>")[0]
    fields = dict(re.findall(r'<input type="hidden" name="(decision|shown|unseen)" value="([^"]*)"', form))
    fields = {name: unescape(value) for name, value in fields.items()}
    asked = named.post(link, **fields, key="of anna")
    assert "a.md +2" in asked.words
    assert "Approve 1 file, 3 lines" in asked.words
    assert "of anna" not in asked.text
    assert named.state(job) == "held"
    again = dict(re.findall(r'<input type="hidden" name="([a-z]+)" value="([^"]*)"', asked.text))
    again = {name: unescape(value) for name, value in again.items()}
    assert named.post(link, **again).status == 403
    assert "Approved" in named.post(link, **again, key="of anna").words
    (decided,) = named.engine.events(1, job_id=job, event="decided")
    assert isinstance(decided["data"], dict)
    assert decided["data"]["unseen"] == {"lines": None, "of": 3}


def test_changes_by_approved_jobs_of_the_mission_do_not_spoil_a_link(afar: Afar) -> None:
    jobs = [afar.house.job("write_file", path="a.md", content=f"{n}\n", mode="append") for n in range(2)]
    afar.house.run(afar.house.ask(*jobs), afar.house.complete)
    first, second = [job.id for job in afar.engine.jobs(states=["held"])]
    links = afar.link(first), afar.link(second)
    afar.now += SECOND
    for link in links:
        assert afar.approve(link).status == 200
        afar.house.work()
    assert (afar.house.root / "a.md").read_text() == "# a\n0\n1\n"


def test_what_the_page_has_not_shown_is_not_approved(afar: Afar) -> None:
    job = afar.house.hold("a.md", CONTENT)
    link = afar.link(job)
    assert afar.post(link, decision="approve").status == 422
    other = afar.house.hold("b.md", CONTENT)
    assert afar.approve(link, afar.get(afar.link(other))).status == 409
    assert afar.post(link, decision="maybe").status == 422
    assert afar.post(link, other="x").status == 422
    assert afar.state(job) == "held"


def test_the_second_of_two_people_is_told_who_decided(afar: Afar) -> None:
    job = afar.house.hold("a.md", CONTENT)
    links = afar.link(job), afar.link(job, expires=timedelta(hours=2))
    pages = [afar.get(link) for link in links]
    assert afar.approve(links[0], pages[0]).status == 200
    second = afar.approve(links[1], pages[1])
    assert second.status == 409
    assert "a signed link has approved it" in second.words
    third = afar.post(links[1], decision="reject", reason="no")
    assert (third.status, "a signed link has approved it" in third.words) == (409, True)
    assert "a signed link has approved it" in afar.get(links[1]).words
    assert len(afar.decisions(job)) == 1


def test_a_decision_on_the_page_is_named_to_who_comes_by_a_link(afar: Afar) -> None:
    job = afar.house.hold("a.md", CONTENT)
    link = afar.link(job)
    afar.engine.reject(job, "no", by="anna")
    assert "anna has rejected it" in afar.get(link).words


def test_a_page_of_another_site_sends_no_decision(afar: Afar) -> None:
    job = afar.house.hold("a.md", CONTENT)
    link = afar.link(job)
    sent = afar.stranger.post(
        link, data={"decision": "reject", "reason": "no"}, headers={"Origin": "https://a.example"}
    )
    assert (sent.status_code, afar.state(job)) == (403, "held")


def test_a_job_of_a_kind_without_preview_shows_its_params(afar: Afar) -> None:
    afar.house.run(afar.house.ask(afar.house.job("list_files"), afar.house.job("list_files", root=".")), policy=[
        {"kinds": ["list_files"], "do": "hold"},
    ])  # fmt: skip
    job = afar.engine.jobs(states=["held"])[0].id
    link = afar.link(job)
    assert "Params" in afar.get(link).words
    assert afar.approve(link).status == 200


def test_a_link_shows_and_decides_the_merge_of_a_stage(afar: Afar) -> None:
    jobs = [afar.house.job("write_file", path=f"{name}.md", content=CONTENT) for name in "ab"]
    afar.house.run(afar.house.ask(*jobs), afar.house.complete, stage=True)
    (merge,) = afar.engine.jobs(states=["held"])
    link = afar.link(merge.id)
    page = afar.get(link)
    for told in ("a.md", "b.md", "+one", "+two"):
        assert told in page.words
    assert afar.approve(link, page).status == 200
    afar.house.work()
    assert {path.read_text() for path in afar.house.root.iterdir()} == {CONTENT}
    afar.engine.undo(1)
    assert [path.name for path in afar.house.root.iterdir()] == ["a.md"]


def test_a_merge_whose_root_has_changed_since_is_not_decided_by_an_older_page(afar: Afar) -> None:
    afar.house.run(
        afar.house.ask(afar.house.job("write_file", path="a.md", content=CONTENT)),
        afar.house.complete,
        stage=True,
    )
    (merge,) = afar.engine.jobs(states=["held"])
    link = afar.link(merge.id)
    page = afar.get(link)
    (afar.house.root / "a.md").write_text("of another program\n")
    assert afar.approve(link, page).status == 409
    assert (afar.house.root / "a.md").read_text() == "of another program\n"


def test_a_question_and_a_decided_job_have_no_link(afar: Afar) -> None:
    afar.house.run(afar.house.ask(afar.house.job("ask_user", question="Well?")), afar.house.complete)
    with pytest.raises(LcpError, match="waits for words; a link approves or rejects") as refused:
        afar.link(afar.engine.jobs(states=["held"])[0].id)
    assert refused.value.code is ErrorCode.WRONG_STATE
    job = afar.house.hold("a.md", CONTENT)
    afar.engine.reject(job, "no", by="anna")
    with pytest.raises(LcpError, match="anna has rejected it"):
        afar.link(job)
    with pytest.raises(LcpError, match="is not in the database"):
        afar.link(999)


def test_a_link_of_a_pruned_job_is_refused_in_words(afar: Afar) -> None:
    from lcp_engine.features.upkeep.store.prune import prune

    job = afar.house.hold("a.md", CONTENT)
    link = afar.link(job)
    afar.post(link, decision="reject", reason="no")
    second = afar.house.hold("b.md", CONTENT)
    afar.house.work()
    afar.engine.cancel(afar.engine.job(job).mission_id) if afar.engine.mission(
        1
    ).status == "waiting" else None
    afar.now += SECOND
    assert prune(afar.engine.instance.database, ended_before=afar.now).missions == 1
    assert (afar.get(link).status, afar.state(second)) == (404, "held")


def test_without_a_configuration_there_are_no_links(house: House) -> None:
    job = house.hold("a.md", CONTENT)
    with pytest.raises(LcpError, match="signed links need `links`"):
        house.engine.links.make(job)
    assert house.stranger().get("/d/x.y").status_code == 422


def test_a_notice_has_a_link_for_each_job_that_one_can_decide(afar: Afar) -> None:
    from lcp_engine.features.notices.composed_notice import compose_notice

    jobs = [
        afar.house.job("write_file", path="a.md", content="x"),
        afar.house.job("ask_user", question="Well?"),
    ]
    mission = afar.house.run(afar.house.ask(*jobs))
    seq = afar.engine.events(mission, event="mission_waits")[0]["seq"]
    assert isinstance(seq, int)
    write, question = compose_notice(afar.engine.instance, mission, seq).jobs
    assert (question.links, write.links and write.links[0].expires_at) == (
        None, "2026-11-19T11:06:40.000000+00:00",
    )  # fmt: skip
    assert write.links is not None
    assert afar.approve(write.links[0].url.removeprefix(HOME)).status == 200


def test_a_notice_without_the_secret_of_links_says_so_and_is_sent_all_the_same(
    afar: Afar, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lcp_engine.features.notices.composed_notice import compose_notice

    monkeypatch.delenv("LINK_SECRET")
    mission = afar.house.run(afar.house.ask(afar.house.job("write_file", path="a.md", content="x")))
    seq = afar.engine.events(mission, event="mission_waits")[0]["seq"]
    assert isinstance(seq, int)
    notice = compose_notice(afar.engine.instance, mission, seq)
    assert (notice.jobs[0].links, notice.links_error) == (
        None, "the environment variable LINK_SECRET should have a secret; it is not set",
    )  # fmt: skip


def test_the_secret_and_the_link_are_not_in_the_database(afar: Afar, tmp_path: Path) -> None:
    job = afar.house.hold("a.md", CONTENT)
    link = afar.link(job)
    afar.approve(link)
    afar.engine.close()
    stored = b"".join(path.read_bytes() for path in tmp_path.glob("lcp.db*") if path.is_file())
    assert SECRET.encode() not in stored
    assert link.removeprefix("/d/").partition(".")[2].encode() not in stored


# -- Named people


@pytest.fixture
def named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Afar]:
    """Links of two approvers, whose tokens are `of anna` and `of ben`."""
    monkeypatch.setenv("LINK_SECRET", SECRET)
    made = Afar(tmp_path, {"anna": hash_of("of anna"), "ben": hash_of("of ben")})
    yield made
    made.engine.close()


def test_the_token_of_the_person_decides_and_the_history_names_them(named: Afar) -> None:
    job = named.house.hold("a.md", CONTENT)
    link = named.link(job, person="anna")
    page = named.get(link)
    assert "Made for anna" in page.words
    assert 'type="password"' in page.text
    assert named.approve(link, page, key="of anna").status == 200
    assert named.decisions(job) == [["approve", "anna"]]
    assert f"anna approved job {job}" in named.get(link).words


@pytest.mark.parametrize(
    ("key", "fact"),
    [
        ("", "the token that was given is not an approver's"),
        ("of carl", "the token that was given is not an approver's"),
        ("of ben", "it was made for anna, and this is the token of ben"),
    ],
)
def test_a_forwarded_link_decides_nothing(named: Afar, key: str, fact: str) -> None:
    job = named.house.hold("a.md", CONTENT)
    link = named.link(job, person="anna")
    for refused in (named.approve(link, key=key), named.post(link, decision="reject", reason="no", key=key)):
        assert refused.status == 403
        assert fact in refused.words
    assert (named.state(job), named.decisions(job)) == ("held", [])
    assert named.approve(link, key="of anna").status == 200


def test_the_reason_stays_typed_when_the_token_is_not_known(named: Afar) -> None:
    link = named.link(named.house.hold())
    refused = named.post(link, decision="reject", key="of nobody", reason="Say <who> reads it.")
    assert refused.status == 403
    assert "Say &lt;who&gt; reads it.</textarea>" in refused.text
    assert named.post(link, decision="reject", key="of anna", reason="Say who reads it.").status == 200


def test_a_link_of_no_person_takes_the_token_of_any(named: Afar) -> None:
    job = named.house.hold("a.md", CONTENT)
    assert named.approve(named.link(job), key="of ben").status == 200
    assert named.decisions(job) == [["approve", "ben"]]


def test_the_second_of_two_approvers_is_told_who_decided(named: Afar) -> None:
    job = named.house.hold("a.md", CONTENT)
    annas, bens = named.link(job, person="anna"), named.link(job, person="ben")
    pages = named.get(annas), named.get(bens)
    assert named.approve(annas, pages[0], key="of anna").status == 200
    late = named.approve(bens, pages[1], key="of ben")
    assert (late.status, "anna has approved it" in late.words) == (409, True)


def test_two_people_who_decide_at_once_decide_once(named: Afar) -> None:
    for number in range(5):
        job = named.house.hold(f"{number}.md", CONTENT)
        refused = decide_at_once(named, job)
        decided = named.decisions(job)
        assert decided in ([["approve", "anna"]], [["approve", "ben"]])
        first = "anna" if ["approve", "anna"] in decided else "ben"
        assert [f"{first} has approved it" in one for one in refused] == [True]


def decide_at_once(named: Afar, job: int) -> list[str]:
    """What those are told who approve the job at the same moment as another one, and too late."""
    ready, refused = threading.Barrier(2), list[str]()

    def decide(who: str, token: str, shown: Sight) -> None:
        ready.wait(PATIENCE_SECONDS)
        try:
            named.engine.links.approve(token, shown=shown, approver_token=f"of {who}")
        except LcpError as error:
            refused.append(str(error))

    people = []
    for who in ("anna", "ben"):
        token = named.link(job, person=who).removeprefix("/d/")
        sight = named.engine.links.open(token).look.sight
        people.append(threading.Thread(target=decide, args=(who, token, sight), daemon=True))
    for one in people:
        one.start()
    for one in people:
        join(one)
    return refused


def test_of_two_approvals_each_comes_by_a_link_of_its_person(named: Afar) -> None:
    job = named.house.job("write_file", path="a.md", content="x")
    named.house.run(named.house.ask(job), policy=[{"do": "hold", "approvals": 2, "kinds": ["write_file"]}])
    (held,) = named.engine.jobs(states=["held"])
    annas, bens = named.link(held.id, person="anna"), named.link(held.id, person="ben")
    first = named.approve(annas, key="of anna")
    assert (first.status, "It waits for the approval of ben." in first.words) == (200, True)
    assert named.state(held.id) == "held"
    named.house.browser.get("/", params={"token": named.house.keys.token})
    for page in (f"/jobs/{held.id}", "/inbox"):
        told = "1 of 2 approvals, by anna. It waits for the approval of ben. With a signed link, or"
        assert told in named.house.get(page).words, page
    again = named.approve(named.link(held.id), key="of anna")
    assert (again.status, named.state(held.id)) == (409, "held")
    assert f"Anna has approved job {held.id} already; it waits for the approval of ben" in again.words
    second = named.approve(bens, key="of ben")
    assert (second.status, "A runner will execute it." in second.words) == (200, True)
    assert named.state(held.id) == "queued"


@pytest.mark.parametrize("rule", [{"approvals": 2}, {"not_requester": True}])
def test_a_link_that_names_no_person_is_none_of_the_people_who_have_to_approve(
    afar: Afar, rule: dict[str, JsonValue]
) -> None:
    job = afar.house.job("write_file", path="a.md", content="x")
    held_by: JsonValue = {"do": "hold", "kinds": ["write_file"], **rule}
    afar.house.run(afar.house.ask(job), policy=[held_by])
    (held,) = afar.engine.jobs(states=["held"])
    refused = afar.approve(afar.link(held.id))
    assert (refused.status, afar.state(held.id)) == (403, "held")
    assert "needs the approval of people who are known by name, and this link names none" in refused.words
    assert "lcp approvers add NAME" in refused.words
    rejected = afar.post(afar.link(held.id), decision="reject", reason="no")
    assert (rejected.status, afar.state(held.id)) == (200, "rejected")


def test_the_links_of_who_was_removed_decide_nothing(named: Afar) -> None:
    job = named.house.hold("a.md", CONTENT)
    link = named.link(job, person="ben")
    page = named.get(link)
    del named.engine.instance.settings(ApproverSettings).approvers["ben"]
    for refused in (named.get(link), named.approve(link, page, key="of ben")):
        assert "it was made for ben, who decides nothing any more" in refused.words
    with pytest.raises(LcpError, match="a link for 'ben' needs an approver of that name"):
        named.link(job, person="ben")


def test_a_notice_has_a_link_for_each_approver(named: Afar) -> None:
    from lcp_engine.features.notices.composed_notice import compose_notice

    mission = named.house.run(named.house.ask(named.house.job("write_file", path="a.md", content="x")))
    seq = named.engine.events(mission, event="mission_waits")[0]["seq"]
    assert isinstance(seq, int)
    (job,) = compose_notice(named.engine.instance, mission, seq).jobs
    assert [link.person for link in job.links or []] == ["anna", "ben"]


def test_a_stage_of_forty_writes_is_decided_by_one_link_and_undone(afar: Afar) -> None:
    house = afar.house
    (house.root / "a.md").chmod(0o750)
    before = house.picture()
    jobs = [
        house.job("write_file", rel_path=f"out/{number}.txt", content=f"text {number}\n")
        for number in range(39)
    ]
    done: JsonValue = {"ok": True, "action": "mission_complete", "summary": "done"}
    edit = house.job("write_file", rel_path="a.md", content="# b\n")
    house.run(house.ask(*jobs, edit), done, stage=True, limits={"max_followups": 40})
    (merge,) = afar.engine.jobs(kinds=["merge"], states=["held"])
    link = afar.link(merge.id)
    page = afar.get(link)
    assert all(f"+text {number}" in page.words for number in range(39))
    assert house.picture() == before
    shown = re.search(r'name="shown" value="([^"]+)"', page.text)
    assert shown is not None
    for part in ({"take": "out/1.txt"}, {"hunk": "1-00000000 a.md"}, {"edit_path": "a.md"}):
        refused = afar.post(link, decision="approve", shown=unescape(shown[1]), **part)
        assert (refused.status, afar.state(merge.id)) == (422, "held"), refused.words
    assert afar.approve(link, page).status == 200
    house.work()
    assert len([*(house.root / "out").iterdir()]) == 39
    assert (house.root / "a.md").read_text() == "# b\n"
    afar.engine.undo(merge.mission_id)
    assert house.picture() == before
    assert afar.approve(link, page).status == 410
