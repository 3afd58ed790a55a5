"""`on_wait` in the user's configuration: a command to run when a mission starts to wait."""

from __future__ import annotations

import base64
import hmac
import json
import re
import socket
import sqlite3
import threading
from contextlib import closing
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import jsonschema
import pytest
from pydantic import JsonValue

if TYPE_CHECKING:
    from tests.cli.conftest import Lcp, Object

PROJECT = Path(__file__).resolve().parents[4]


def configure(lcp: Lcp, **keys: object) -> None:
    place = lcp.home / "config" / "lcp-engine"
    place.mkdir(parents=True)
    (place / "config.yaml").write_text(json.dumps(keys))


@pytest.mark.parametrize("as_text", [False, True])
def test_a_mission_that_starts_to_wait_runs_the_users_command_once(lcp: Lcp, as_text: bool) -> None:
    program = lcp.home / "tell.sh"
    program.write_text(
        '#!/bin/sh\necho "$LCP_MISSION $LCP_MISSION_NAME $LCP_HELD $1 ${SECRET_KEY-none}" >> "$0.log"\n'
    )
    program.chmod(0o755)
    configure(lcp, on_wait=f"{program} 'a b'" if as_text else [str(program), "a b"])
    done = lcp(
        "run",
        lcp.mission(lcp.ask("ask_user", question="Well?"), lcp.complete),
        "--root",
        "root",
        SECRET_KEY="x",
    )
    assert done.code == 3
    lcp("work", "--until-idle", "-q")
    assert (lcp.home / "tell.sh.log").read_text() == "1 mission 1 a b none\n"


@pytest.mark.parametrize("command", ["false", "/nowhere/notify"])
def test_a_failing_command_does_no_harm_and_is_reported_once(lcp: Lcp, command: str) -> None:
    configure(lcp, on_wait=command)
    mission = lcp.mission(lcp.ask("ask_user", question="Well?"), lcp.complete)
    for _ in range(2):
        lcp("launch", mission, "--root", "root")
    done = lcp("work", "--until-idle", "-q")
    assert (done.code, done.err.count("on_wait"), done.err.count("\n")) == (0, 1, 1)


KEEPS = """#!/bin/sh
cat > "$0.json"
"""


def test_the_command_reads_each_held_job_with_what_it_would_change(lcp: Lcp) -> None:
    program = lcp.home / "keep.sh"
    program.write_text(KEEPS)
    program.chmod(0o755)
    configure(lcp, on_wait=[str(program)])
    jobs: list[JsonValue] = [
        {"kind": "write_file", "params": {"path": "a.md", "content": "# b\nmore\n"}, "name": "Title"},
        {"kind": "ask_user", "params": {"question": "Which one?", "options": ["this", "that"]}},
    ]
    asked: Object = {**lcp.ask("-"), "commentary": "The title is wrong.", "new_jobs": jobs}
    lcp("run", lcp.mission(asked, lcp.complete, hold_timeout=86400), "--root", "root")
    notice = json.loads((lcp.home / "keep.sh.json").read_text())
    jsonschema.Draft202012Validator(lcp("schema", "notice").object).validate(notice)
    mission = lcp("show", 1, "--json").object
    assert notice["mission"] == {key: mission[key] for key in ("id", "uid", "name", "goal", "root")}
    (waits,) = [
        one
        for one in map(json.loads, lcp("watch", 1, "--json").out.splitlines())
        if one["event"] == "mission_waits"
    ]
    assert (notice["id"], notice["at"]) == (f"{mission['uid']}-{waits['seq']}", waits["at"])
    assert (notice["event"], notice["held"], "omitted" in notice) == ("mission_waits", 2, True)
    write, question = notice["jobs"]
    assert write.pop("expires_at") == question.pop("expires_at") > notice["at"]
    assert write == {
        "id": 2, "kind": "write_file", "about": "a.md", "name": "Title", "path": "a.md",
        "reason": "default policy: kinds with effects wait for a person", "reason_code": "default_hold",
        "words": "The title is wrong.",
        "diff": {"path": "a.md", "added": 2, "removed": 1, "is_whole": True},
    }  # fmt: skip
    assert question == {
        "id": 3, "kind": "ask_user", "about": "Which one?", "reason": "it is a question to a person",
        "reason_code": "question", "words": "The title is wrong.", "question": "Which one?",
        "options": ["this", "that"],
    }  # fmt: skip


def test_a_webhook_that_nobody_serves_changes_no_outcome_and_is_listed(lcp: Lcp) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    configure(lcp, webhook={"url": f"http://127.0.0.1:{port}/", "secret_file": "hook.secret"})
    secret = lcp.home / "config" / "lcp-engine" / "hook.secret"
    secret.write_text("a secret that is long enough")
    secret.chmod(0o600)
    assert "No notices" in lcp("deliveries").err
    done = lcp("run", lcp.mission(lcp.ask("ask_user", question="Well?")), "--root", "root", "-q")
    refused = "the connection failed: Connection refused"
    assert done.code == 3
    assert f"webhook 127.0.0.1: {refused}; it is tried again, and `lcp deliveries` shows" in done.err
    (one,) = json.loads(lcp("deliveries", "--json").out)
    page = (PROJECT / "docs" / "interface.md").read_text(encoding="utf-8")
    (documented,) = re.findall(r"^\| delivery \| (.*) \|$", page, re.MULTILINE)
    assert set(one) == set(re.findall(r"`(\w+)`", documented))
    assert (one["state"], one["error"], one["attempts"]) == ("unsent", refused, 1)
    listed = lcp("deliveries").out
    assert "unsent" in listed
    assert refused in listed
    assert "long enough" not in done.err + listed


def test_a_test_notice_says_what_the_server_answers_and_stays_out_of_the_list(lcp: Lcp) -> None:
    taken: list[tuple[dict[str, str], bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            taken.append(({name.lower(): value for name, value in self.headers.items()}, body))
            self.send_response(204 if len(taken) == 1 else 403)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- the name of the library
            pass

    assert "no webhook is configured" in lcp("deliveries", "send-test").err
    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    configure(lcp, webhook={"url": f"http://127.0.0.1:{server.server_port}/s3cret", "secret_env": "HOOK"})
    secret = "a secret that is long enough"
    done = lcp("deliveries", "send-test", HOOK=secret)
    refused = lcp("deliveries", "send-test", HOOK=secret)
    unset = lcp("deliveries", "send-test")
    server.shutdown()
    server.server_close()
    gone = lcp("deliveries", "send-test", "--json", HOOK=secret)
    assert (done.code, done.out) == (0, "127.0.0.1 took the test notice and answered 204.\n")
    (headers, body), _ = taken
    notice = json.loads(body)
    jsonschema.Draft202012Validator(lcp("schema", "notice").object).validate(notice)
    assert (notice["event"], notice["id"], notice["jobs"]) == ("test", headers["webhook-id"], [])
    signed = b".".join((headers["webhook-id"].encode(), headers["webhook-timestamp"].encode(), body))
    expected = base64.b64encode(hmac.digest(secret.encode(), signed, "sha256")).decode()
    assert headers["webhook-signature"] == f"v1,{expected}"
    assert (refused.code, "did not take the test notice: it answered 403" in refused.err) == (1, True)
    assert (unset.code, "HOOK should have a secret" in unset.err) == (1, True)
    assert (gone.code, json.loads(gone.err)["error"]["error_code"]) == (1, "WEBHOOK_FAILED")
    assert "s3cret" not in refused.err + gone.out + gone.err
    assert json.loads(lcp("deliveries", "--json", HOOK=secret).out) == []
    assert lcp("deliveries", "send-test", "--limit", 3).code == 2


def test_doctor_warns_of_notices_that_no_runner_has_sent(lcp: Lcp) -> None:
    configure(lcp, webhook={"url": "http://127.0.0.1:9/", "secret_env": "HOOK"})
    secret = {"HOOK": "a secret that is long enough"}
    mission = lcp.mission(lcp.ask("ask_user", question="Well?"))
    lcp("run", mission, "--root", "root", "-q", **secret)
    assert "never sent" not in lcp("doctor", **secret).out
    with closing(sqlite3.connect(lcp.database)) as database, database:
        database.execute("UPDATE deliveries SET attempts = 0, created_at = created_at - 61000000")
    found = lcp("doctor", **secret)
    assert "warn  webhook            notices that were never sent: 1 unsent, the oldest since" in found.out
    with closing(sqlite3.connect(lcp.database)) as database, database:
        database.execute("UPDATE deliveries SET state = 'outdated'")
    assert "never sent: 1 outdated" in lcp("doctor", **secret).out


@pytest.mark.parametrize(
    ("webhook", "fact"),
    [
        ({"url": "https://a.example/"}, "webhook: either secret_env or secret_file is needed"),
        ({"url": "http://a.example/", "secret_env": "X"}, "webhook.url: should begin with https://"),
        (
            {"url": "https://a.example/", "secret": "x", "secret_env": "X"},
            "webhook.secret: is not a known key",
        ),
        ({"url": "https://a.example/", "secret_env": "a b"}, "webhook.secret_env: "),
    ],
)
def test_a_webhook_that_cannot_be_used_is_refused_in_one_line(lcp: Lcp, webhook: Object, fact: str) -> None:
    configure(lcp, webhook=webhook)
    done = lcp("missions")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert fact in done.err


def test_a_command_that_reads_nothing_gets_along_with_a_notice_of_any_size(lcp: Lcp) -> None:
    configure(lcp, on_wait="true")
    done = lcp("run", lcp.mission(lcp.ask("ask_user", question="?" * 100_000)), "--root", "root", "-q")
    assert (done.code, done.err) == (3, "")


def test_a_notice_lists_so_many_jobs_and_says_how_many_it_leaves_out(lcp: Lcp) -> None:
    program = lcp.home / "keep.sh"
    program.write_text(KEEPS)
    program.chmod(0o755)
    configure(lcp, on_wait=[str(program)])
    jobs: list[JsonValue] = [
        {"kind": "write_file", "params": {"path": f"{number}.md", "content": "x"}} for number in range(103)
    ]
    asked: Object = {**lcp.ask("-"), "new_jobs": jobs}
    limits: Object = {"max_jobs": 200, "max_followups": 200}
    lcp("run", lcp.mission(asked, lcp.complete, limits=limits), "--root", "root")
    notice = json.loads((lcp.home / "keep.sh.json").read_text())
    assert (notice["held"], len(notice["jobs"]), notice["omitted"]) == (103, 100, 3)
