from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from lcp_engine.web import app
from lcp_engine.web.access import HEADERS, Address, Secrets
from lcp_engine.web.context import PACKAGE
from lcp_engine.web.forms import MOST_BYTES

if TYPE_CHECKING:
    from tests.web.conftest import House

SCRIPTS = [f'<script src="/static/{name}.js" defer>' for name in ("drafts", "decide", "live")]
LOOKS = [
    "/",
    "/missions/1",
    "/jobs",
    "/jobs/1",
    "/jobs/1/json",
    "/inbox",
    "/launch",
    "/events",
    "/missions/1/report.md",
    "/missions/1/settings",
    "/missions/1/fork",
    "/missions/1/replay",
    "/memory",
    "/memory/1",
    "/overview",
    "/evals",
]
CHANGES = [
    "/jobs/1/approve",
    "/jobs/1/reject",
    "/jobs/1/always",
    "/missions/1/rules/1/remove",
    "/jobs/1/retry",
    "/jobs/1/edit",
    "/jobs/1/answer",
    "/jobs/1/say",
    "/jobs/1/undo",
    "/jobs/1/viewed",
    "/view",
    "/launch/own",
    "/missions/1/say",
    "/missions/1/undo",
    "/missions/1/cancel",
    "/missions/1/resume",
    "/missions/1/fork",
    "/missions/1/replay",
    "/inbox",
    "/inbox/all",
    "/launch",
    "/memory/1/edit",
    "/memory/1/forget",
    "/schedules/launch",
    "/schedules/remove",
]


def test_all_scripts_of_the_page_together_are_small() -> None:
    assert sum(script.stat().st_size for script in (PACKAGE / "static").glob("*.js")) <= 30_000


@pytest.mark.parametrize("path", LOOKS)
def test_no_page_opens_without_the_cookie(house: House, path: str) -> None:
    answer = house.stranger().get(path)
    assert answer.status_code == 401
    assert "open the newest link" in answer.text


@pytest.mark.parametrize("path", ["/d/x/", "/jobs/", "/inbox/", "/static"])
def test_an_address_with_another_end_leads_nowhere(house: House, path: str) -> None:
    assert house.stranger().get(path).status_code == (404 if path.startswith(("/d/", "/static/")) else 401)
    assert house.browser.get(path, follow_redirects=False).status_code == 404


@pytest.mark.parametrize("path", CHANGES)
def test_nothing_is_changed_without_the_cookie(house: House, path: str) -> None:
    assert house.stranger().post(path, data={"csrf": house.keys.csrf}).status_code == 401


@pytest.mark.parametrize("token", ["", "wrong", "ÿ", "x" * 5000])
def test_a_wrong_token_lets_no_one_in(house: House, token: str) -> None:
    answer = house.stranger().get("/", params={"token": token})
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers


def test_the_token_becomes_a_cookie_that_scripts_and_other_sites_do_not_get(house: House) -> None:
    token = house.keys.token
    answer = house.stranger().get("/", params={"token": token})
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "path=/" in cookie
    assert token.lower() not in cookie


def test_a_token_lets_in_one_browser(house: House) -> None:
    token = house.keys.token
    assert house.stranger().head("/", params={"token": token}).status_code == 401
    assert house.stranger().get("/", params={"token": token}).status_code == 303
    assert house.keys.token != token
    again = house.stranger().get("/", params={"token": token})
    assert (again.status_code, "set-cookie" in again.headers) == (401, False)
    assert "this link was used before" in again.text


@pytest.mark.parametrize("path", ["//evil.example/", "/\\evil.example/", "///evil.example"])
def test_the_way_in_leads_nowhere_else(house: House, path: str) -> None:
    stranger = house.stranger()
    answer = stranger.get(f"{house.home}{path}", params={"token": house.keys.token})
    assert re.match(r"/[^/\\]", answer.headers["location"])


def test_every_run_of_the_page_has_secrets_of_its_own() -> None:
    secrets = {secret for keys in (Secrets(), Secrets()) for secret in (keys.token, keys.cookie, keys.csrf)}
    assert len(secrets) == 6
    assert all(len(secret) >= 43 for secret in secrets)
    assert not any(secret in repr(Secrets()) for secret in secrets)


@pytest.mark.parametrize("host", ["127.0.0.1:8470", "localhost:8470", "LOCALHOST:8470", "[::1]:8470"])
def test_the_own_host_is_served(house: House, host: str) -> None:
    assert house.get("/", Host=host).status in (200, 401)


@pytest.mark.parametrize(
    ("host", "is_ours"),
    [
        ("10.0.0.5:8470", True),
        ("[fe80::1]:8470", True),
        ("lab.example", True),
        ("10.0.0.5", False),
        ("10.0.0.5:8471", False),
        ("10.0.0.05:8470", False),
        ("10.5:8470", False),
        ("167772165:8470", False),
        ("10.0.0.5:8470:8470", False),
        ("fe80::1:8470", False),
        ("[fe80::1%lo]:8470", False),
        ("evil.example", False),
        ("evil.example:8470", False),
        ("lab.example:8470", False),
        ("lab.example.", False),
    ],
)
def test_bound_everywhere_addresses_and_named_hosts_are_served(host: str, is_ours: bool) -> None:
    assert Address(8470, frozenset({"lab.example"}), any_address=True).is_own_host(host) is is_ours


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "http://127.0.0.1:9999",
        "http://localhost:8470",
        "null",
        "",
        "http://127.0.0.1:8470.evil.example",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_foreign_origin_is_refused(house: House, origin: str, method: str) -> None:
    job_id = house.hold()
    if method == "GET":
        assert house.get("/", Origin=origin).status == 403
    else:
        assert house.post(f"/jobs/{job_id}/approve", Origin=origin).status == 403
        assert house.engine.job(job_id).state == "held"


@pytest.mark.parametrize("token", ["", "wrong"])
@pytest.mark.parametrize("path", CHANGES)
def test_every_change_needs_the_token_of_the_form(house: House, path: str, token: str) -> None:
    job_id = house.hold()
    before = house.engine.event_counts()
    answer = house.post(
        path.replace("/jobs/1/", f"/jobs/{job_id}/"), {"csrf": token, "reason": "no", "mission": "survey"}
    )
    assert answer.status == 403
    assert house.engine.event_counts() == before


def test_every_form_of_the_pages_carries_the_token(house: House) -> None:
    job_id = house.hold()
    house.run(
        house.ask(house.job("write_file", rel_path="b.md", content="b")),
        policy=[{"kinds": ["*"], "do": "auto"}],
    )
    pages = (
        "/missions/1",
        f"/jobs/{job_id}",
        f"/jobs/{job_id}/edit",
        "/missions/2/undo",
        "/inbox",
        "/launch",
        f"/memory/{house.engine.memory.add('T', 'C', root=house.root).number}",
    )
    for path in pages:
        forms = re.findall(r'<form[^>]*method="post".*?</form>', house.get(path).text, re.DOTALL)
        assert forms
        assert all(house.keys.csrf in form for form in forms)


def test_no_address_changes_anything_when_it_is_only_opened(house: House) -> None:
    house.hold()
    for path in CHANGES:
        assert house.get(path).status in (200, 405, 409)
    assert house.engine.job(2).state == "held"


def test_these_tests_know_every_change() -> None:
    assert {re.sub(r"\d+", "N", path) for path in CHANGES} == {
        re.sub(r"\{.*?\}", "N", path) for path, _ in app.all_actions()
    }


@pytest.mark.parametrize("path", [*LOOKS[:4], "/static/page.css", "/nothing", "/jobs/x"])
def test_every_answer_says_what_a_browser_may_do(house: House, path: str) -> None:
    house.hold()
    for answer in (house.get(path).headers, house.stranger().get(path).headers):
        for name, value in HEADERS.items():
            assert answer[name] == value


def test_the_policy_allows_only_files_of_the_page() -> None:
    policy = dict(part.split(" ", 1) for part in HEADERS["Content-Security-Policy"].split("; "))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert "unsafe" not in str(policy)
    assert all(value in ("'self'", "'none'") for value in policy.values())


def test_no_page_holds_a_script_or_a_style(house: House) -> None:
    job_id = house.hold()
    for path in (
        "/",
        "/missions/1",
        "/missions/1/timeline",
        "/missions/1/report",
        "/missions/1/changes",
        f"/jobs/{job_id}",
        f"/jobs/{job_id}/edit",
        f"/jobs/{job_id}/diff",
        f"/jobs/{job_id}/policy",
        "/inbox",
        "/launch",
    ):
        text = house.get(path).text
        assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:", text)
        keys = ['<script src="/static/keys.js" defer>'] if path in ("/inbox", f"/jobs/{job_id}") else []
        assert re.findall(r"<script[^>]*>", text) == SCRIPTS + keys


def test_a_form_that_is_too_large_is_refused(house: House) -> None:
    job_id = house.hold()
    answer = house.post(f"/jobs/{job_id}/reject", {"reason": "x" * MOST_BYTES})
    assert answer.status == 413
    assert house.engine.job(job_id).state == "held"


def test_a_form_that_hides_its_size_is_refused_as_well(house: House) -> None:
    job_id = house.hold()
    chunks = (b"reason=" if number == 0 else b"x" * 65536 for number in range(20))
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Origin": house.home}
    answer = house.browser.post(f"/jobs/{job_id}/reject", content=chunks, headers=headers)
    assert answer.status_code == 413
    assert house.engine.job(job_id).state == "held"


@pytest.mark.parametrize(
    ("kind", "body", "status"),
    [
        ("application/json", b"{}", 415),
        ("multipart/form-data; boundary=x", b"--x--", 415),
        ("application/x-www-form-urlencoded", b"csrf=%ff", 422),
        ("application/x-www-form-urlencoded", b"csrf=\xff", 422),
        ("application/x-www-form-urlencoded", b"&".join([b"a=1"] * 3000), 422),
    ],
)
def test_what_is_no_form_is_refused(house: House, kind: str, body: bytes, status: int) -> None:
    job_id = house.hold()
    headers = {"Content-Type": kind, "Origin": house.home}
    assert house.browser.post(f"/jobs/{job_id}/approve", content=body, headers=headers).status_code == status
    assert house.engine.job(job_id).state == "held"


def test_static_files_do_not_lead_out_of_their_directory(house: House) -> None:
    for path in ("/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2fapp.py", "/static/"):
        assert house.stranger().get(path).status_code in (401, 404, 405)
