"""The page of decisions lists who decided what, with filters that stay in the address."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tests.web.test_browser import _faults, chromium, window

from lcp_engine.api.user import user_name

if TYPE_CHECKING:
    from tests.web.conftest import House
    from tests.web.test_browser import Window

__all__ = ["chromium", "window"]


def test_decisions_are_listed_and_filtered(house: House) -> None:
    assert "Nobody has decided anything yet." in house.get("/decisions").words
    kept, refused = house.hold("a.txt"), house.hold("b.txt")
    house.approve(kept)
    house.post(f"/jobs/{refused}/reject", {"reason": "<b>Not</b> now."})
    listed = house.get("/decisions")
    assert "<b>Not" not in listed.text
    rows = re.findall(r"<tr><td.*?</tr>", listed.text, re.DOTALL)
    assert len(rows) == 2
    assert f"/jobs/{refused}" in rows[0]
    assert "rejected" in rows[0]
    assert "a.txt" in rows[1]
    assert listed.text.count(user_name()) >= 4
    for query, count in (
        ("kind=write_file", 2),
        ("kind=merge", 0),
        (f"by={user_name()}", 2),
        ("by=nobody", 0),
        ("since=2020-01-01&until=2020-02-01", 0),
    ):
        assert len(re.findall(r"<tr><td", house.get(f"/decisions?{query}").text)) == count, query
    assert house.get("/decisions?since=soon").status == 422
    assert house.get("/decisions?behind=soon").status == 422


def test_the_page_of_decisions_is_readable(window: Window) -> None:
    window.house.approve(window.house.hold("a.txt"))
    page = window.open("/")
    page.get_by_role("link", name="Decisions").click()
    page.get_by_role("link", name="last week").click()
    page.get_by_role("cell", name="approved").wait_for()
    assert _faults(page) == []
