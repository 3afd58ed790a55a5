"""The roles of docs/operations.md are enough, and may do no more than they have to."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from pydantic import JsonValue
from sqlalchemy import make_url
from tests.conftest import SERVER, postgres_database

from lcp_engine import Engine, LcpError
from lcp_engine.features.check.store.examination import check_database

PAGE = Path(__file__).resolve().parents[2] / "docs" / "operations.md"
BLOCKS = dict(re.findall(r'^```sql title="([^"]+)"\n(.*?)^```', PAGE.read_text(), re.DOTALL | re.MULTILINE))


@pytest.fixture
def roles() -> Iterator[dict[str, str]]:
    """The URL of a new database for each role of the page, whose names belong to this test."""
    for url in postgres_database():
        mark, database = f"lcp_{uuid4().hex[:8]}", str(make_url(url).database)
        made = BLOCKS["roles.sql"].replace("lcp_", f"{mark}_").splitlines()
        names = [line.split()[2] for line in made if line.startswith("CREATE ROLE")]
        with psycopg.connect(str(SERVER), autocommit=True) as server:
            for name in names:
                server.execute(f"CREATE ROLE {name} LOGIN")
            server.execute(f"ALTER DATABASE {database} OWNER TO {mark}_owner")
        try:
            yield {
                name.removeprefix(f"{mark}_"): make_url(url)
                .set(username=name)
                .render_as_string(hide_password=False)
                for name in names
            }
        finally:
            with psycopg.connect(url, autocommit=True) as server:
                server.execute(f"REASSIGN OWNED BY {', '.join(names)} TO CURRENT_USER")
                server.execute(f"DROP OWNED BY {', '.join(names)}")
                server.execute(f"DROP ROLE {', '.join(names)}")


def test_the_runner_does_everything_and_the_reader_sees_the_views_alone(
    roles: dict[str, str], tmp_path: Path
) -> None:
    Engine(roles["owner"]).close()
    runner, reader = (make_url(roles[name]).username for name in ("runner", "reader"))
    with psycopg.connect(roles["owner"], autocommit=True) as owner:
        owner.execute(
            BLOCKS["grants.sql"].replace("lcp_runner", str(runner)).replace("lcp_reader", str(reader))
        )
    replies: list[JsonValue] = [
        {"ok": True, "action": "write_file", "rel_path": "a.txt", "content": "a"},
        {"ok": True, "action": "mission_complete", "summary": "Done."},
    ]
    with Engine(roles["runner"]) as engine:
        mission = engine.launch(
            {"goal": "Write.", "planner": {"type": "script", "replies": replies}}, root=tmp_path
        )
        engine.work(until_idle=True)
        for job in engine.jobs(mission_id=mission.id, states=["held"]):
            engine.approve(job.id)
        engine.work(until_idle=True)
        assert engine.mission(mission.id).outcome == "mission_complete"
        assert engine.replay(mission.id).is_same
        engine.undo(mission.id)
    assert check_database(roles["runner"], kept_bytes=1_000_000) == []
    with (
        psycopg.connect(roles["runner"], autocommit=True) as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        connection.execute("DROP TABLE jobs CASCADE")
    with psycopg.connect(roles["reader"], autocommit=True) as connection:
        assert connection.execute("SELECT count(*) FROM job_history").fetchall() != [(0,)]
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("SELECT * FROM jobs")
    with pytest.raises(LcpError, match="permission denied"):
        Engine(roles["reader"])
