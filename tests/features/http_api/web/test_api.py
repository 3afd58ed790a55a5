"""Programs look, launch and decide over HTTP: each by its token, each write once, nothing unseen."""

# mypy: disable-error-code="comparison-overlap"
# `Found` equals the value that it reads.
from __future__ import annotations

import asyncio
import json
import re
import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from runpy import run_path
from typing import TypeAlias

import pytest
from jsonschema import Draft202012Validator
from pydantic import JsonValue
from starlette.testclient import TestClient
from tests.patience import in_thread, wait_until

from lcp_engine import Engine
from lcp_engine.core.json_values import object_in
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.features.approvers.rules import hash_of
from lcp_engine.features.http_api import follow
from lcp_engine.features.http_api.document import document
from lcp_engine.features.http_api.server import Api, open_api
from lcp_engine.features.http_api.settings import ServeSettings
from lcp_engine.features.http_api.store import counts_since
from lcp_engine.features.tokens.calls import Scope
from lcp_engine.web.connections import ConnectionLimits
from lcp_engine.web.server import PageServer

PROJECT = Path(__file__).parents[4]
Object: TypeAlias = dict[str, JsonValue]
DOCUMENT = document()
PATHS = object_in(DOCUMENT["paths"])
DONE: Object = {"ok": True, "action": "mission_complete", "summary": "done"}
PORT = "http://127.0.0.1"


def asks(*jobs: Object) -> Object:
    return {"ok": True, "action": "create_followup_jobs", "new_jobs": [*jobs]}


def write(path: str = "new.md", content: str = "new\n") -> Object:
    return {"kind": "write_file", "params": {"rel_path": path, "content": content}}


class Found:
    """What was answered, read by keys."""

    def __init__(self, value: JsonValue) -> None:
        self.value = value

    def __getitem__(self, key: str | int) -> Found:
        if isinstance(self.value, dict) and isinstance(key, str):
            return Found(self.value[key])
        assert isinstance(self.value, list)
        assert isinstance(key, int)
        return Found(self.value[key])

    def __iter__(self) -> Iterator[Found]:
        assert isinstance(self.value, list)
        return map(Found, self.value)

    def __contains__(self, part: str) -> bool:
        return part in str(self.value)

    def __eq__(self, other: object) -> bool:
        return self.value == (other.value if isinstance(other, Found) else other)

    def __hash__(self) -> int:
        return hash(str(self.value))

    def __repr__(self) -> str:
        return str(self.value)


class Client:
    """A program with a token; each answer is held to the document."""

    def __init__(self, api: Api, token: str) -> None:
        self.http = TestClient(api, base_url=PORT, raise_server_exceptions=False)
        self.token = token

    def send(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Found]:
        sent = {"Authorization": f"Bearer {self.token}", **headers}
        if method != "GET":
            sent.setdefault("Idempotency-Key", str(uuid.uuid4()))
        stated = json.loads(json.dumps(body, default=lambda one: one.value))
        answer = self.http.request(method, f"/v1{path}", json=stated, headers=sent)
        self.check(method, f"/v1{path.partition('?')[0]}", answer.status_code, answer.json())
        self.headers = answer.headers
        return answer.status_code, Found(answer.json())

    def get(self, path: str) -> Found:
        status, found = self.send("GET", path)
        assert status == 200, found
        return found

    def post(self, path: str, body: object = None, **headers: str) -> Found:
        status, found = self.send("POST", path, body, **headers)
        assert status in (200, 201), found
        return found

    def refused(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Found]:
        status, found = self.send(method, path, body, **headers)
        assert status >= 400, found
        return status, found["code"]

    @staticmethod
    def check(method: str, path: str, status: int, found: JsonValue) -> None:
        template = next((one for one in PATHS if re.fullmatch(re.sub(r"{\w+}", "[^/]+", one), path)), "")
        name: object = "#/components/schemas/Problem"
        if status < 400:
            responses = Found(PATHS[template])[method.lower()]["responses"]
            name = responses[str(status)]["content"]["application/json"]["schema"]["$ref"].value
        schema = {"$ref": name, "components": DOCUMENT["components"]}
        Draft202012Validator(schema).validate(found)


class Hall:
    """An engine with its API, and programs with tokens."""

    def __init__(self, url: str, root: Path, **options: object) -> None:
        self.url, self.root = url, root
        self.engine = Engine(url, **options)  # type: ignore[arg-type]
        self.gate = self.engine.tokens.gate(only_here=True)
        self.api = open_api(self.engine, ServeSettings(roots=(str(root),), missions=("survey",)), self.gate)
        assert self.gate.token is not None
        self.client = Client(self.api, self.gate.token)

    def program(self, name: str, *scopes: Scope, **given: object) -> Client:
        return Client(self.api, self.engine.tokens.add(name, scopes, **given))  # type: ignore[arg-type]

    def run(self, *replies: Object, **spec: JsonValue) -> int:
        planner: Object = {"type": "script", "replies": [*replies]}
        spec = {"goal": "Find out.", "planner": planner, **spec}
        id_ = self.engine.launch(spec, root=self.root).id
        self.engine.work(until_idle=True)
        return id_

    def hold(self, path: str = "new.md") -> int:
        self.run(asks(write(path)), DONE)
        return self.engine.jobs(states=["held"])[-1].id


@pytest.fixture
def hall(emptied_database_url: str, tmp_path: Path) -> Iterator[Hall]:
    root = tmp_path / "root"
    root.mkdir()
    made = Hall(emptied_database_url, root)
    with made.engine:
        yield made


def test_the_committed_document_is_that_of_the_code() -> None:
    written = run_path(str(PROJECT / "tools" / "openapi.py"))["page"]()
    committed = (PROJECT / "docs" / "openapi.json").read_text(encoding="utf-8")
    assert committed == written, "python tools/openapi.py"


def test_a_mission_is_launched_decided_and_undone(hall: Hall) -> None:
    client = hall.client
    spec: Object = {"goal": "write", "planner": {"type": "script", "replies": [asks(write()), DONE]}}
    mission = client.post("/missions", {"root": str(hall.root), "spec": spec})["id"]
    hall.engine.work(until_idle=True)
    assert client.get(f"/missions/{mission}?wait=5")["status"] == "waiting"
    (held,) = client.get(f"/held?mission={mission}")["items"]
    shown = client.get(f"/held/{held['id']}")
    assert "+new" in shown["diffs"][0]["diff"]
    decided = client.post(f"/jobs/{held['id']}/approve", {"shown": shown["shown"]})
    assert (decided["changed"], decided["job"]["state"]) == (True, "queued")
    hall.engine.work(until_idle=True)
    assert client.get(f"/missions/{mission}")["status"] == "completed"
    assert (hall.root / "new.md").read_text() == "new\n"
    assert client.get(f"/missions/{mission}/changes")["items"][0]["path"] == "new.md"
    planned = client.get(f"/missions/{mission}/undo")
    assert client.post(f"/missions/{mission}/undo", {"shown": planned["shown"]})["job_id"] is not None
    assert not (hall.root / "new.md").exists()


def test_everything_can_be_read_and_is_as_the_document_says(hall: Hall) -> None:
    hall.run(asks(write()), DONE)
    job = hall.hold("other.md")
    hall.engine.memory.add("Title", "Content", root=hall.root)
    hall.engine.add_schedule("daily", {"goal": "again", "planner": {"type": "script", "replies": [DONE]}},
                             root=hall.root, every="1h")  # fmt: skip
    client = hall.client
    pages = [
        "/missions", "/missions?status=waiting&text=find", "/missions/1", "/missions/1/turns", "/missions/1/turns/1",
        "/missions/1/events", "/missions/1/changes", "/missions/1/report", "/missions/1/rules", "/missions/1/undo",
        "/missions/1/plan", "/missions/1/spec", "/missions/1/drafts",
        "/jobs", "/jobs?state=held&state=queued&kind=write_file", "/jobs/1", "/jobs/1/attempts", "/jobs/1/diff",
        f"/jobs/{job}/contents?path=other.md", f"/jobs/{job}/policy", "/missions/1/viewed", "/activity?over=week",
        "/decisions?since=2026-01-01T00:00:00Z&mission=1&by=x&kind=write_file",
        "/held", f"/held/{job}", "/memory", "/memory/1", "/runners", "/schedules", "/kinds", "/statistics", "/offers",
    ]  # fmt: skip
    for page in pages:
        client.get(page)
    assert client.refused("GET", f"/jobs/{job}/diff") == (409, "WRONG_STATE")
    assert client.refused("GET", "/held/1") == (409, "WRONG_STATE")


def test_a_mission_is_replayed_and_forked(hall: Hall) -> None:
    hall.run(DONE)
    assert hall.client.post("/missions/1/replay")["differences"] == []
    forked = hall.client.post("/missions/1/fork", {"turn": 1, "reply": json.dumps(DONE)})
    assert (forked["id"], len(hall.engine.missions())) == (2, 2)


def test_replays_are_for_those_who_look_and_hold_nothing_up(
    hall: Hall, monkeypatch: pytest.MonkeyPatch
) -> None:
    mission = hall.run(DONE)
    path, begun, end = f"/missions/{mission}/replay", threading.Event(), threading.Event()
    blind = hall.program("blind", Scope.LAUNCH)
    assert blind.refused("POST", path) == (403, "NOT_ALLOWED")
    replay = Engine.replay

    def slow(engine: Engine, id_: int) -> object:
        begun.set()
        assert end.wait(60)
        return replay(engine, id_)

    monkeypatch.setattr(Engine, "replay", slow)
    first = threading.Thread(target=Client(hall.api, hall.client.token).post, args=(path,))
    first.start()
    assert begun.wait(60)
    assert hall.client.refused("POST", path) == (429, "TOO_MANY_REQUESTS")
    end.set()
    first.join(60)
    assert hall.client.post(path)["differences"] == []


def test_a_mission_over_a_root_that_is_not_listed_is_not_forked(hall: Hall, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    planner: Object = {"type": "script", "replies": [DONE]}
    mission = hall.engine.launch({"goal": "x", "planner": planner}, root=other).id
    hall.engine.work(until_idle=True)
    fork: Object = {"turn": 1, "reply": json.dumps(asks(write()))}
    assert hall.client.refused("POST", f"/missions/{mission}/fork", fork) == (403, "NOT_ALLOWED")
    assert len(hall.engine.missions()) == 1


@pytest.mark.both
def test_lists_are_read_to_their_ends_by_cursors(hall: Hall) -> None:
    for _ in range(3):
        hall.run(DONE)
    for path, name in (("/missions", "id"), ("/jobs", "id"), ("/missions/1/events", "seq")):
        whole, found, query = hall.client.get(path)["items"], list[Found](), "limit=1"
        while query:
            page = hall.client.get(f"{path}?{query}")
            found += page["items"]
            key = "after" if "events" in path else "cursor"
            query = "" if page["next"] == None else f"limit=1&{key}={page['next']}"  # noqa: E711
        assert [one[name] for one in found] == [one[name] for one in whole]
        assert len(found) >= 3


def test_each_scope_lets_in_its_own_and_no_token_nothing(hall: Hall) -> None:
    programs = {scope: hall.program(scope, scope) for scope in Scope}
    stranger = Client(hall.api, "lcp-token-unknown")
    for template, operations in PATHS.items():
        path = re.sub(r"{\w+}", "999", template.removeprefix("/v1"))
        for method, operation in object_in(operations).items():
            (scope,) = re.findall(r"Scope: `(\w+)`", str(object_in(operation)["description"]))
            assert stranger.refused(method.upper(), path) == (401, "TOKEN_REFUSED")
            assert stranger.headers["www-authenticate"] == "Bearer"
            for own, program in programs.items():
                if own != scope:
                    assert program.refused(method.upper(), path) == (403, "TOKEN_REFUSED")
    assert programs[Scope.LOOK].get("/offers")["scopes"] == ["look"]


def test_an_approval_names_what_this_token_was_shown_last_of_this_job(hall: Hall) -> None:
    job, other = hall.hold("a.md"), hall.hold("b.md")
    client, second = hall.client, hall.program("second", Scope.LOOK, Scope.DECIDE)
    assert client.refused("POST", f"/jobs/{job}/approve", {"shown": "guessed"}) == (409, "CONFLICT")
    assert client.refused("POST", f"/jobs/{job}/approve", {}) == (422, "INVALID_ARGUMENT")
    first = client.get(f"/held/{job}")["shown"]
    of_other = client.get(f"/held/{other}")["shown"]
    for mark in (of_other, second.get(f"/held/{job}")["shown"]):
        assert client.refused("POST", f"/jobs/{job}/approve", {"shown": mark}) == (409, "CONFLICT")
    (hall.root / "a.md").write_text("changed meanwhile\n")
    assert client.refused("POST", f"/jobs/{job}/approve", {"shown": first}) == (409, "CONFLICT")
    newer = client.get(f"/held/{job}")["shown"]
    assert client.refused("POST", f"/jobs/{job}/approve", {"shown": first}) == (409, "CONFLICT")
    assert client.post(f"/jobs/{job}/approve", {"shown": newer})["job"]["state"] == "queued"
    assert client.post(f"/jobs/{job}/approve", {"shown": newer})["changed"] == False  # noqa: E712


def test_a_token_that_is_added_by_the_name_of_another_has_seen_and_written_nothing(hall: Hall) -> None:
    job = hall.hold()
    said: Object = {"text": "Mind the date."}
    key = {"Idempotency-Key": "one"}
    one = hall.program("ci", Scope.LOOK, Scope.DECIDE)
    shown = one.get(f"/held/{job}")["shown"]
    one.post(f"/jobs/{job}/say", said, **key)
    hall.engine.tokens.remove("ci")
    other = hall.program("ci", Scope.LOOK, Scope.DECIDE)
    assert other.refused("POST", f"/jobs/{job}/approve", {"shown": shown}) == (409, "CONFLICT")
    other.post(f"/jobs/{job}/say", said, **key)
    assert "idempotency-replayed" not in other.headers


def test_a_rule_is_removed_if_it_is_the_one_that_was_listed(hall: Hall) -> None:
    rules: list[JsonValue] = [{"kinds": [kind], "do": "auto"} for kind in ("read_file", "write_file")]
    hall.run(DONE, policy=rules)
    program = hall.program("admin", Scope.LOOK, Scope.ADMIN)
    first, second = program.get("/missions/1/rules")["items"]
    path = "/missions/1/rules/1"
    assert program.refused("DELETE", path, {"rule": second}) == (409, "CONFLICT")
    assert program.refused("DELETE", "/missions/1/rules/3", {"rule": first}) == (404, "NOT_FOUND")
    assert program.send("DELETE", path, {"rule": first})[0] == 200
    assert program.refused("DELETE", path, {"rule": first}) == (409, "CONFLICT")
    assert program.get("/missions/1/rules")["items"].value == [second.value]


def test_an_entry_of_memory_is_changed_as_it_was_read(hall: Hall) -> None:
    hall.engine.memory.add("Title", "Content", root=hall.root)
    program = hall.program("admin", Scope.LOOK, Scope.ADMIN)
    seen = program.get("/memory/1")["updated_at"]
    assert program.send("PATCH", "/memory/1", {"title": "Date", "seen": seen})[0] == 200
    assert program.refused("PATCH", "/memory/1", {"title": "Hour", "seen": seen}) == (409, "CONFLICT")
    for wrong in (
        "yesterday",
        "2026-01-01T00:00:00",
        "0001-01-01T00:00:00+14:00",
        1,
        "9999-12-31T23:59:59-14:00",
    ):
        assert program.refused("PATCH", "/memory/1", {"title": "x", "seen": wrong})[0] in (409, 422), wrong
    assert program.get("/memory/1")["title"] == "Date"


def test_other_params_are_shown_before_they_are_approved(hall: Hall) -> None:
    job = hall.hold("a.md")
    other: Object = {"rel_path": "a.md", "content": "other\n"}
    plain = hall.client.get(f"/held/{job}")["shown"]
    body = {"shown": plain, "params": other}
    assert hall.client.refused("POST", f"/jobs/{job}/approve", body)[0] == 409
    shown = hall.client.post(f"/jobs/{job}/look", {"params": other})
    assert "+other" in shown["diffs"][0]["diff"]
    hall.client.post(f"/jobs/{job}/approve", {"shown": shown["shown"], "params": other})
    hall.engine.work(until_idle=True)
    assert (hall.root / "a.md").read_text() == "other\n"


def test_a_change_that_is_not_shown_in_full_is_not_approved_here(hall: Hall) -> None:
    job, client = hall.hold("a.md"), hall.client
    long = {"rel_path": "a.md", "content": "a\n" * 200_001}
    seen = client.post(f"/jobs/{job}/look", {"params": long})
    assert [seen["shown"].value, seen["caveat"].value] == [
        None,
        "what it would change is too large to be shown in full",
    ]
    refused = client.refused("POST", f"/jobs/{job}/approve", {"shown": "x", "params": long})
    assert refused == (409, "CONFLICT")


@pytest.mark.both
def test_several_held_jobs_are_decided_each_as_it_was_shown(hall: Hall) -> None:
    jobs = [hall.hold(f"{name}.md") for name in "abcd"]
    shown = {job: hall.client.get(f"/held/{job}")["shown"] for job in jobs}
    (hall.root / "c.md").write_text("changed meanwhile\n")
    asked = [{"job": job, "shown": shown[job]} for job in jobs[:3]] + [{"job": jobs[3]}, {"job": 999}]
    key = {"Idempotency-Key": "k"}
    found = hall.client.post("/decisions", {"decision": "approve", "jobs": asked}, **key)
    assert (found["done"].value, found["waiting"].value, found["before"].value) == (jobs[:2], [], [])
    refused = [(one["job"].value, one["code"].value) for one in found["refused"]]
    assert refused == [(jobs[2], "CONFLICT"), (jobs[3], "CONFLICT"), (999, "NOT_FOUND")]
    hall.engine.instance.database.write(lambda tx: tx.plain("DELETE FROM api_writes"))
    assert hall.client.post("/decisions", {"decision": "approve", "jobs": asked}, **key) == found
    rest: Object = {"decision": "reject", "jobs": [{"job": jobs[2]}, {"job": jobs[3]}]}
    assert hall.client.refused("POST", "/decisions", rest) == (422, "INVALID_ARGUMENT")
    done = hall.client.post("/decisions", {**rest, "reason": "No."})["done"]
    assert [done.value, hall.engine.job(jobs[3]).state] == [jobs[2:], "rejected"]
    none = hall.client.post("/decisions", {**rest, "reason": "Again.", "jobs": [{"job": 1}]})
    assert [one["code"] for one in none["refused"]] == ["WRONG_STATE"]
    for wrong in ("since=0.5", "until=2026-01-01T00:00:00", "since=soon", "cursor=x", "over=1"):
        assert hall.client.refused("GET", f"/decisions?{wrong}") == (422, "INVALID_ARGUMENT")
    newest = hall.client.get("/decisions?limit=1")
    assert (newest["items"][0]["words"], newest["items"][0]["decision"]) == ("No.", "reject")
    assert (
        hall.client.get(f"/decisions?cursor={newest['next']}&kind=write_file")["items"][2]["job_id"] in jobs
    )


def test_files_are_viewed_and_comments_go_with_a_decision(hall: Hall) -> None:
    job = hall.hold()
    mark = hall.client.get(f"/held/{job}")["diffs"][0]["mark"].value
    assert hall.client.post(f"/jobs/{job}/viewed", {"mark": mark, "seen": True}) == {mark: True}
    assert hall.client.get("/missions/1/viewed") == {mark: True}
    assert hall.client.post(f"/jobs/{job}/viewed", {"mark": mark, "viewed": False}) == {}
    assert hall.client.refused("POST", f"/jobs/{job}/viewed", {"mark": "x"}) == (422, "INVALID_ARGUMENT")
    comments = [{"path": "new.md", "line": 1, "text": "Say more."}]
    hall.client.post(f"/jobs/{job}/say", {"text": "Two things.", "comments": comments})
    gone = [{"path": "a\nb", "line": 7, "removed": True, "text": "Keep it."}]
    hall.client.post(f"/jobs/{job}/reject", {"reason": "No.", "comments": [*comments, *gone]})
    said = next(one["data"] for one in hall.engine.events(1) if one["event"] == "said")
    assert object_in(said)["text"] == "Two things.\nnew.md, line 1: Say more."
    assert (
        hall.engine.job(job).json["reason"]
        == "No.\nnew.md, line 1: Say more.\na<U+000A>b, removed line 7: Keep it."
    )


def test_a_rule_for_all_missions_is_for_those_who_administer(
    hall: Hall, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    job, admin = hall.hold("docs/a.md"), hall.program("all", Scope.LOOK, Scope.DECIDE, Scope.ADMIN)
    for_all: Object = {"rule": 0, "paths": ["docs/"], "scope": "user"}
    given = {**for_all, "shown": hall.client.get(f"/held/{job}")["shown"]}
    assert hall.client.refused("POST", f"/jobs/{job}/always", given) == (403, "NOT_ALLOWED")
    shown = {"shown": admin.get(f"/held/{job}")["shown"]}
    wrong = {**shown, "rule": 0, "paths": ["elsewhere/"]}
    assert admin.refused("POST", f"/jobs/{job}/always", wrong) == (409, "WRONG_STATE")
    assert admin.post(f"/jobs/{job}/always", {**for_all, **shown})["job"]["state"] == "queued"
    assert admin.get("/missions/1/rules")["items"][0]["paths"].value == ["docs/"]
    (written,) = (tmp_path / "config").rglob("config.yaml")
    assert "{kinds: [write_file], paths: [docs/], do: auto}" in written.read_text()


def test_a_schedule_is_added_for_what_the_operator_listed(hall: Hall) -> None:
    planner: Object = {"type": "script", "replies": [asks(write()), DONE]}
    stated: Object = {"root": str(hall.root), "spec": {"goal": "x", "planner": planner}}
    daily: Object = {"name": "daily", "every": "1d", **stated}
    admin = hall.program("both", *Scope)
    assert hall.program("admin", Scope.ADMIN).refused("POST", "/schedules", daily) == (403, "NOT_ALLOWED")
    assert admin.refused("POST", "/schedules", {**daily, "root": "/etc"}) == (403, "NOT_ALLOWED")
    assert admin.refused("POST", "/schedules", {**daily, "cron": "x"})[0] == 422
    assert admin.post("/schedules", daily)["name"] == "daily"
    assert admin.refused("POST", "/schedules", daily) == (409, "WRONG_STATE")
    assert admin.post("/schedules", {**daily, "every": "2d", "replace": True})["rule"] == "every 2d"
    found = admin.post("/check", stated)
    assert ([one["kind"] for one in found["script"]], found["findings"]) == (["write_file"], [])
    assert admin.get("/missions")["items"].value == []


def test_a_key_gives_the_same_answer_and_no_second_effect(hall: Hall) -> None:
    spec: Object = {"goal": "write", "planner": {"type": "script", "replies": [DONE]}}
    body: Object = {"root": str(hall.root), "spec": spec}
    key = {"Idempotency-Key": "one"}
    first = hall.client.post("/missions", body, **key)
    hall.engine.work(until_idle=True)
    other_gate = hall.engine.tokens.gate(only_here=True)
    again = Client(open_api(hall.engine, ServeSettings(), other_gate), hall.client.token)
    assert again.refused("POST", "/missions", body, **key) == (401, "TOKEN_REFUSED")  # of another start
    assert hall.client.post("/missions", body, **key) == first
    assert hall.client.headers["idempotency-replayed"] == "true"
    assert hall.client.refused("POST", "/missions", {**body, "planner": {"type": "none"}}, **key) == (
        409,
        "CONFLICT",
    )
    assert hall.client.refused("POST", "/missions/1/cancel", **key) == (409, "CONFLICT")
    assert len(hall.engine.missions()) == 1
    for wrong in ("", "x" * 201):
        assert hall.client.refused("POST", "/missions", body, **{"Idempotency-Key": wrong})[0] == 422


@pytest.mark.both
def test_a_write_whose_answer_was_not_kept_is_not_done_again(hall: Hall) -> None:
    """As after a server that was killed between both."""
    planner: Object = {"type": "script", "replies": [DONE]}
    body: Object = {"root": str(hall.root), "spec": {"goal": "x", "planner": planner}}
    hall.client.post("/missions", body, **{"Idempotency-Key": "k"})
    hall.engine.instance.database.write(
        lambda tx: tx.plain("UPDATE api_writes SET answer = NULL, status = NULL")
    )
    hall.engine.work(until_idle=True)
    again = hall.client.post("/missions", body, **{"Idempotency-Key": "k"})
    assert (again["id"], again["status"], len(hall.engine.missions())) == (1, "completed", 1)


@pytest.mark.both
def test_an_undo_by_many_requests_with_one_key_is_one(hall: Hall) -> None:
    mission = hall.engine.launch(
        {
            "goal": "x",
            "planner": {"type": "script", "replies": [asks(write()), DONE]},
            "policy": [{"kinds": ["*"], "do": "auto"}],
        },
        root=hall.root,
    )
    hall.engine.work(until_idle=True)
    body: Object = {"shown": hall.client.get(f"/missions/{mission.id}/undo")["shown"].value}
    found: list[Found] = []

    def undo() -> None:
        one = Client(hall.api, hall.client.token)
        found.append(one.post(f"/missions/{mission.id}/undo", body, **{"Idempotency-Key": "k"}))

    threads = [threading.Thread(target=undo) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    hall.engine.instance.database.write(
        lambda tx: tx.plain("UPDATE api_writes SET answer = NULL, status = NULL")
    )
    undo()
    assert [found[0], found[0]["files"][0]["change"].value] == [found[-1], "removed"]
    assert (len(found), len(set(found)), len(hall.engine.jobs(kinds=["undo"]))) == (5, 1, 1)


@pytest.mark.both
def test_a_write_is_done_once_if_the_database_is_busy_after_it(
    hall: Hall, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec: Object = {"goal": "x", "planner": {"type": "script", "replies": [DONE]}}
    body: Object = {"root": str(hall.root), "spec": spec}
    with monkeypatch.context() as patched:

        def busy(_: Engine, __: int) -> None:
            raise LcpError(ErrorCode.DATABASE_BUSY, "the database is busy", advice="Send it again.")

        patched.setattr(Engine, "mission", busy)
        key = {"Idempotency-Key": "k"}
        assert hall.client.refused("POST", "/missions", body, **key) == (503, "DATABASE_BUSY")
    assert hall.client.post("/missions", body, **{"Idempotency-Key": "k"})["id"] == 1
    assert len(hall.engine.missions()) == 1


def test_a_refused_write_is_not_remembered(hall: Hall) -> None:
    key = {"Idempotency-Key": "one"}
    assert hall.client.refused("POST", "/missions/1/cancel", **key) == (404, "NOT_FOUND")
    hall.engine.launch({"goal": "x", "planner": {"type": "script", "replies": [DONE]}}, root=hall.root)
    assert hall.client.post("/missions/1/cancel", **key)["changed"] == True  # noqa: E712


@pytest.mark.both
def test_many_requests_with_one_key_have_one_effect(hall: Hall) -> None:
    spec: Object = {"goal": "write", "planner": {"type": "script", "replies": [DONE]}}
    found: list[Found] = []

    def launch() -> None:
        one = Client(hall.api, hall.client.token)
        found.append(
            one.post("/missions", {"root": str(hall.root), "spec": spec}, **{"Idempotency-Key": "k"})["id"]
        )

    threads = [threading.Thread(target=launch) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert (len(found), len(set(found)), len(hall.engine.missions())) == (6, 1, 1)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({}, "INVALID_ARGUMENT"),
        ({"spec": {"goal": "x"}}, "INVALID_ARGUMENT"),
        ({"spec": {"goal": "x"}, "root": "/etc"}, "NOT_ALLOWED"),
        ({"spec": {"goal": "x"}, "root": "ROOT/.."}, "NOT_ALLOWED"),
        ({"spec": {"goal": "x", "root": "/etc"}, "root": "ROOT"}, "INVALID_MISSION"),
        ({"mission": "survey"}, "INVALID_ARGUMENT"),
        ({"mission": "../survey"}, "NOT_ALLOWED"),
        ({"mission": "survey", "spec": {}}, "INVALID_ARGUMENT"),
        ({"mission": "survey", "root": "ROOT", "allow_admin": True}, "INVALID_ARGUMENT"),
    ],
)
def test_a_launch_names_what_the_operator_listed(hall: Hall, body: Object, code: str) -> None:
    sent = {
        key: value.replace("ROOT", str(hall.root)) if isinstance(value, str) else value
        for key, value in body.items()
    }
    assert hall.client.refused("POST", "/missions", sent)[1] == code
    assert hall.engine.missions() == []


def test_a_listed_mission_is_launched_over_a_listed_root(hall: Hall) -> None:
    found = hall.client.post("/missions", {"mission": "survey", "root": str(hall.root)})
    assert (found["root"], found["planner"]) == (str(hall.root), "surveyor")


def test_a_listed_mission_that_cannot_be_read_is_refused_in_words(hall: Hall, tmp_path: Path) -> None:
    path = tmp_path / "nightly.yaml"
    path.write_bytes(b"goal: \xff\n")
    api = open_api(hall.engine, ServeSettings(missions=(str(path),)), hall.gate)
    client, launch = Client(api, hall.client.token), ("POST", "/missions", {"mission": "nightly"})
    assert client.refused(*launch) == (422, "INVALID_MISSION")
    path.unlink()
    assert client.refused(*launch) == (422, "INVALID_MISSION")


def test_questions_are_answered_as_they_were_shown(hall: Hall) -> None:
    question: Object = {"kind": "ask_user", "params": {"question": "Which?", "options": ["red", "blue"]}}
    hall.run(asks(question), DONE)
    (held,) = hall.client.get("/held")["items"]
    shown = hall.client.get(f"/held/{held['id']}")["question"]
    path = f"/jobs/{held['id']}/answer"
    assert (shown["text"], shown["options"]) == ("Which?", ["red", "blue"])
    assert hall.client.refused("POST", path, {"text": "2"})[1] == "NOT_SHOWN"
    assert hall.client.refused("POST", path, {"text": "2", "shown": "another"})[1] == "CONFLICT"
    assert hall.client.post(path, {"text": "2", "shown": shown["shown"]})["job"]["state"] == "succeeded"


def test_two_tokens_of_one_person_are_one_approval(emptied_database_url: str, tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    two: JsonValue = [{"kinds": ["write_file"], "do": "hold", "approvals": 2}]
    approvers = {"anna": hash_of("a"), "ben": hash_of("b")}
    made = Hall(emptied_database_url, tmp_path / "root", approvers=approvers)
    with made.engine:
        both = (Scope.LOOK, Scope.DECIDE)
        anna = [made.program(f"a{n}", *both, person="anna", is_approver=True) for n in (1, 2)]
        ben, feigned = (
            made.program("b", *both, person="ben", is_approver=True),
            made.program("f", *both, person="ben"),
        )
        made.run(asks(write()), DONE, policy=two)
        (job,) = made.engine.jobs(states=["held"])

        def approve(client: Client) -> tuple[int, Found]:
            shown = client.get(f"/held/{job.id}")["shown"]
            return client.send("POST", f"/jobs/{job.id}/approve", {"shown": shown})

        assert approve(anna[0])[1]["job"]["state"] == "held"
        assert approve(anna[1])[1]["changed"] == False  # noqa: E712
        assert [approve(one)[1]["code"] for one in (made.client, feigned)] == ["NOT_ALLOWED"] * 2
        assert approve(ben)[1]["job"]["state"] == "queued"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/missions/x", 404), ("GET", f"/missions/{'9' * 5000}", 404), ("GET", "/missions?limit=0", 422),
        ("GET", "/missions?limit=1&limit=2", 422), ("GET", "/missions?foo=1", 422), ("GET", "/runners?x=1", 422),
        ("GET", "/jobs?state=odd", 422), ("GET", "/jobs?text=%00", 422), ("GET", "/jobs?text=%ff", 422),
        ("GET", "/missions?cursor=-1", 422), ("PUT", "/missions", 405), ("DELETE", "/missions/1", 405),
        ("GET", "/nothing", 404), ("GET", "/missions/1/turns/1", 404), ("GET", "/memory?root=%2fnowhere", 404),
        ("GET", f"/memory?root={'0' * 300}", 404),
    ],
)  # fmt: skip
def test_an_address_that_is_not_valid_is_refused_in_words(
    hall: Hall, method: str, path: str, status: int
) -> None:
    assert hall.client.refused(method, path)[0] == status


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 422), (b"[]", 422), (b'{"text": "a"} {}', 422), (b'{"text": "a", "text": "b"}', 422),
        (b'{"text": NaN}', 422),
        (b'{"text": "\xff"}', 422), (b'{"text": "\\u0000"}', 422), (b'{"text": "\\ud800"}', 422), (b'{"text": 1}', 422),
        (b'{"text": ' + b"[" * 100_000, 422), (b'{"text": "a", "more": 1}', 422), (b"x" * (1024 * 1024 + 1), 413),
    ],
    ids=range(12),
)  # fmt: skip
def test_a_body_that_is_not_valid_is_refused_in_words(hall: Hall, body: bytes, status: int) -> None:
    headers = {
        "Authorization": f"Bearer {hall.client.token}",
        "Idempotency-Key": "k",
        "Content-Type": "application/json",
    }
    answer = hall.client.http.post("/v1/missions/1/say", content=body, headers=headers)
    Client.check("POST", "/v1/missions/1/say", answer.status_code, answer.json())
    assert answer.status_code == status, answer.text
    plain = hall.client.http.post(
        "/v1/missions/1/say", content=b"{}", headers={**headers, "Content-Type": "text/plain"}
    )
    assert plain.status_code == 415


def test_a_token_over_its_limit_is_told_when_to_come_again(hall: Hall) -> None:
    client = hall.program("slow", Scope.LOOK, per_minute=2)
    assert [client.send("GET", "/runners")[0] for _ in range(3)] == [200, 200, 429]
    assert 1 <= int(client.headers["retry-after"]) <= 30


def test_no_page_of_another_origin_is_let_in_unless_named(hall: Hall) -> None:
    named = open_api(hall.engine, ServeSettings(origins=("https://board.example.org",)), hall.gate)
    asked = {"Origin": "https://board.example.org", "Access-Control-Request-Method": "GET"}
    for api, allowed in ((hall.api, None), (named, "https://board.example.org")):
        answer = TestClient(api, base_url=PORT).options("/v1/missions", headers=asked)
        assert answer.headers.get("access-control-allow-origin") == allowed


# -- A real server


@contextmanager
def serving(
    hall: Hall, api: Api, port: int = 0, limits: ConnectionLimits | None = None
) -> Iterator[PageServer]:
    server = PageServer(hall.engine, port=port, doors={"/v1": api}, limits=limits)
    with in_thread(server.run, server.stop):
        yield server


class Stream:
    """What a client of server-sent events receives."""

    def __init__(self, port: int, token: str, path: str, last: str = "") -> None:
        self.connection = HTTPConnection("127.0.0.1", port, timeout=60)
        headers = {"Authorization": f"Bearer {token}", "Accept": "text/event-stream"}
        self.connection.request(
            "GET", f"/v1{path}", headers=headers | ({"Last-Event-ID": last} if last else {})
        )
        self.answer = self.connection.getresponse()
        self.last = last

    def events(self) -> Iterator[Object]:
        while line := self.answer.readline().decode():
            field, _, value = line.rstrip("\n").partition(": ")
            if field == "id":
                self.last = value
            if field == "data":
                yield json.loads(value)
        self.close()

    def close(self) -> None:
        self.answer.close()
        self.connection.close()


@pytest.mark.both
def test_streams_go_on_over_a_restart_and_end_with_the_mission(hall: Hall) -> None:
    token = hall.engine.tokens.add("ci", {Scope.LOOK})
    stated = ServeSettings()
    planner: Object = {"type": "script", "replies": [asks(write()), DONE]}
    mission = hall.engine.launch({"goal": "x", "planner": planner}, root=hall.root).id
    launched = len(hall.engine.events(mission))
    with serving(hall, open_api(hall.engine, stated, hall.gate)) as server:
        port = server.port
        one, all_ = Stream(port, token, f"/missions/{mission}/events"), Stream(port, token, "/events")
        seen = [next(one.events())]
        everything: list[Object] = []
        reader = threading.Thread(target=lambda: everything.extend(all_.events()), daemon=True)
        reader.start()
        hall.engine.work(until_idle=True)
        wait_until(lambda: any(event["event"] == "held" for event in everything))
    reader.join(60)
    one.close()
    (job,) = hall.engine.jobs(states=["held"])
    hall.engine.approve(job.id)
    hall.engine.work(until_idle=True)
    with serving(hall, open_api(hall.engine, stated, hall.gate)) as server:
        rest = Stream(server.port, token, f"/missions/{mission}/events?until=end", one.last)
        seen += rest.events()
        later = Stream(server.port, token, "/events", all_.last)
        wanted = hall.engine.events(mission)
        assert [event["seq"] for event in seen] == [event["seq"] for event in wanted]
        for event in later.events():
            everything.append(event)
            if event["seq"] == wanted[-1]["seq"]:
                break
        later.close()
        assert {event["seq"] for event in everything} >= {event["seq"] for event in wanted[launched:]}
        for path, last in ((f"/missions/{mission}/events", "999"), ("/events", "9" * 18), ("/events", "x")):
            future = Stream(server.port, token, path, last)
            assert (future.answer.status, json.loads(future.answer.read())["code"]) == (
                422,
                "INVALID_ARGUMENT",
            )
            future.close()


def test_a_stream_ends_with_its_token(hall: Hall, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "KEEPALIVE_SECONDS", 0.1)
    token = hall.engine.tokens.add("ci", {Scope.LOOK})
    hall.run(DONE)
    with serving(hall, open_api(hall.engine, ServeSettings(), hall.gate)) as server:
        streams = [Stream(server.port, token, path) for path in ("/missions/1/events", "/events")]
        hall.engine.tokens.remove("ci")
        assert len([*streams[0].events()]) == hall.engine.events(1)[-1]["seq"]
        assert [*streams[1].events()] == []


def test_streams_are_shared_by_tokens(hall: Hall, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, number in (("MOST_STREAMS", 5), ("MOST_OF_TOKEN", 3), ("KEPT_FREE", 1)):
        monkeypatch.setattr(follow, name, number)
    pulse, tokens = follow.Pulse(hall.engine), {}
    for name in ("a", "b", "c", "d"):
        hall.engine.tokens.add(name, {Scope.LOOK})
        tokens[name] = hall.engine.tokens.all()[-1]
    refused = [pulse.enter(tokens[name]) for name in "aaaabbcd"]
    assert [said is None for said in refused] == [True, True, True, False, True, False, True, False]
    assert refused[3] == "token a has 3 streams and waits open, which is its limit"
    assert refused[7] == "5 streams and waits are open at this server; its limit is 5"
    for name in "aaabc":
        pulse.leave(tokens[name])
    assert not pulse.followers


def test_a_look_at_all_missions_reads_those_with_news_alone(hall: Hall) -> None:
    hall.run(DONE)
    hall.hold()
    read = hall.engine.instance.read
    sums, counts = read(counts_since, {})
    assert counts == hall.engine.event_counts()
    assert read(counts_since, sums) == (sums, {})
    pulse = follow.Pulse(hall.engine)

    async def look() -> list[object]:
        one, other = await pulse.follow(None), await pulse.follow(0)
        mark = await pulse.changed(None, 60)
        assert one.changes == {}
        assert other.changes == {id_: (0, last) for id_, last in counts.items()}
        hall.engine.say(2, "more")
        await pulse.changed(mark, 60)
        del other
        return [one.changes, len(pulse._streams)]

    assert asyncio.run(look()) == [{2: (counts[2], hall.engine.event_counts()[2])}, 1]


def test_a_wait_ends_when_the_mission_rests(hall: Hall) -> None:
    planner: Object = {"type": "script", "replies": [DONE]}
    mission = hall.engine.launch({"goal": "x", "planner": planner}, root=hall.root).id
    worker = threading.Timer(0.3, lambda: hall.engine.work(until_idle=True))
    worker.start()
    assert hall.client.get(f"/missions/{mission}?wait=60&until=end")["status"] == "completed"
    worker.join(60)
    assert hall.client.get(f"/missions/{mission}?wait=0.05")["status"] == "completed"


def test_a_wait_ends_with_its_token(hall: Hall, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "KEEPALIVE_SECONDS", 0.1)
    planner: Object = {"type": "script", "replies": [DONE]}
    mission = hall.engine.launch({"goal": "x", "planner": planner}, root=hall.root).id
    program = hall.program("ci", Scope.LOOK)
    end = threading.Timer(0.3, hall.engine.tokens.remove, ["ci"])
    end.start()
    assert program.refused("GET", f"/missions/{mission}?wait=60&until=end") == (401, "TOKEN_REFUSED")
    end.join(60)


def test_a_stream_goes_on_beyond_the_limit_of_its_token(hall: Hall, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "KEEPALIVE_SECONDS", 0.1)
    token = hall.engine.tokens.add("ci", {Scope.LOOK}, per_minute=1)
    with serving(hall, open_api(hall.engine, ServeSettings(), hall.gate)) as server:
        stream = Stream(server.port, token, "/events")
        while stream.answer.readline() != b":\n":
            pass
        assert [stream.answer.readline() for _ in range(5)] == [b"\n", b":\n", b"\n", b":\n", b"\n"]
        hall.run(DONE)
        assert next(stream.events())["seq"] == 1
        stream.close()


def test_the_page_and_the_api_know_nothing_of_each_others_access(hall: Hall) -> None:
    token = hall.engine.tokens.add("ci", {Scope.LOOK})
    with serving(hall, open_api(hall.engine, ServeSettings(), hall.gate)) as server:

        def get(path: str, **headers: str) -> tuple[int, str]:
            connection = HTTPConnection("127.0.0.1", server.port, timeout=60)
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            text = answer.read().decode()
            connection.close()
            return answer.status, text

        bearer = f"Bearer {token}"
        assert get("/v1/runners", Authorization=bearer)[0] == 200
        assert get("/", Authorization=bearer)[0] == 403
        assert get("/v1/runners", Cookie=f"lcp-{server.port}={server._secrets.cookie}")[0] == 401
        status, text = get(f"/v1/runners?token={token}", Authorization=bearer)
        assert (status, json.loads(text)["code"], token in text) == (400, "TOKEN_REFUSED", False)
        assert json.loads(get("/v1/openapi.json")[1])["openapi"] == "3.1.0"


def test_what_is_large_slow_or_many_holds_nothing_up(hall: Hall) -> None:
    token = hall.engine.tokens.add("ci", {Scope.LOOK, Scope.DECIDE})
    head = f"POST /v1/missions/1/say HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
    head += "Content-Type: application/json\r\nIdempotency-Key: k\r\n"
    large = 100 * 1024 * 1024
    with serving(hall, open_api(hall.engine, ServeSettings(), hall.gate)) as server:
        address = ("127.0.0.1", server.port)
        for framing, chunk in (
            (f"Content-Length: {large}", b"x" * 65536),
            ("Transfer-Encoding: chunked", b"10000\r\n" + b"x" * 65536 + b"\r\n"),
        ):
            with socket.create_connection(address, timeout=60) as connection:
                connection.sendall(f"{head}{framing}\r\n\r\n".encode())
                with suppress(OSError):  # it is closed once it is too much
                    for _ in range(large // 65536):
                        connection.sendall(chunk)
                with suppress(ConnectionError):
                    assert b" 413 " in connection.recv(100)
        slow = [Stream(server.port, token, "/events") for _ in range(4)]  # nobody reads them
        silent = [socket.create_connection(address, timeout=60) for _ in range(300)]
        hall.run(*[asks(write(f"{n}.md")) for n in range(3)], DONE)
        heard = Stream(server.port, token, "/missions/1/events?after=1")
        assert next(heard.events())["seq"] == 2
        heard.close()
        for one in silent:
            one.close()
        for reader in slow:
            reader.close()


def test_whoever_finds_all_connections_in_use_is_told_to_come_again(hall: Hall) -> None:
    token = hall.engine.tokens.add("ci", {Scope.LOOK})
    limits = ConnectionLimits(connections=4, without_access=2)
    with serving(hall, open_api(hall.engine, ServeSettings(), hall.gate), limits=limits) as server:
        streams = [Stream(server.port, token, "/events") for _ in range(4)]
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as refused:
            said = refused.recv(1000).decode()
        for one in streams:
            one.close()
    assert said.startswith("HTTP/1.1 503 ")
    assert "\r\nRetry-After: 5\r\n" in said
    assert said.endswith("\r\n\r\nAll connections of this server are in use. Try later.")


def test_a_program_that_reads_nothing_of_its_answers_is_closed(hall: Hall) -> None:
    token = hall.engine.tokens.add("ci", {Scope.LOOK})
    ask = f"GET /v1/kinds HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
    limits = ConnectionLimits(request_seconds=0.5)
    with (
        serving(hall, open_api(hall.engine, ServeSettings(), hall.gate), limits=limits) as server,
        socket.socket() as reader,
    ):
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        reader.settimeout(60)
        reader.connect(("127.0.0.1", server.port))
        with pytest.raises(ConnectionError):  # noqa: PT012 -- nothing is read
            while True:
                reader.sendall(ask)


def blocks(language: str) -> list[str]:
    text = (PROJECT / "docs" / "api.md").read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def test_the_clients_of_the_docs_do_what_they_say(hall: Hall, tmp_path: Path) -> None:
    token = hall.engine.tokens.add("ci", {Scope.LOOK, Scope.LAUNCH, Scope.DECIDE})
    (python,), (shell,) = blocks("python"), blocks("sh")
    assert len(python.strip().splitlines()) <= 62
    question: Object = {"kind": "ask_user", "params": {"question": "Which?"}}
    planner: Object = {"type": "script", "replies": [asks(write(), question), DONE]}
    auto: Object = {"type": "script", "replies": [asks({"kind": "list_files", "params": {}}), DONE]}
    (tmp_path / "client.py").write_text(python)
    (tmp_path / "follow.sh").write_text(shell)
    api = open_api(hall.engine, ServeSettings(roots=(str(hall.root),)), hall.gate)
    runner = hall.engine.runner(threads=1)
    with serving(hall, api) as server, in_thread(runner.run, runner.stop):
        given = {"LCP_API": f"{PORT}:{server.port}/v1", "LCP_TOKEN": token, "PATH": "/usr/bin:/bin"}
        done = subprocess.run(
            [sys.executable, tmp_path / "client.py", hall.root, "Write."], input="yes\nthe blue one\n", text=True,
            env={**given, "LCP_PLANNER_JSON": json.dumps(planner)}, capture_output=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert "+new" in done.stdout
        assert (hall.root / "new.md").read_text() == "new\n"
        followed = subprocess.run(
            ["sh", tmp_path / "follow.sh", hall.root, "Look."], text=True, capture_output=True, timeout=120,
            check=False, env={**given, "LCP_PLANNER_JSON": json.dumps(auto)},
        )  # fmt: skip
        assert followed.returncode == 0, followed.stderr
        assert '"event": "mission_completed"' in followed.stdout
        assert '"job_id": null' in followed.stdout
