"""Text that no database has is refused in words at each door, and finds nothing."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import anyio
import pytest
from acp import RequestError
from mcp import Client
from starlette.testclient import TestClient

from lcp_engine import Engine
from lcp_engine.api.pages import PageQueries
from lcp_engine.cli.commands.load_mission import MissionOptions
from lcp_engine.core.safe_text import is_storable
from lcp_engine.features.editors.agent import EditorAgent
from lcp_engine.features.http_api.server import open_api
from lcp_engine.features.http_api.settings import ServeSettings
from lcp_engine.features.mcp_server.door import McpDoor
from lcp_engine.features.mcp_server.listed import Listed
from lcp_engine.features.tokens.calls import Scope
from lcp_engine.planners.environment import EMPTY_ENVIRONMENT


def test_text_that_no_database_has_is_refused_at_each_door(emptied_database_url: str, tmp_path: Path) -> None:
    with Engine(emptied_database_url) as engine:
        gate = engine.tokens.gate(only_here=True)
        api = TestClient(open_api(engine, ServeSettings(), gate), base_url="http://127.0.0.1")
        token = engine.tokens.add("all", {*Scope})
        agent = EditorAgent(engine, MissionOptions(""), EMPTY_ENVIRONMENT, 0)
        for text in ("\ud800", "a\0b"):
            assert not is_storable({"list": [{text: 1}]})
            headers = {"Authorization": f"Bearer {token}", "Idempotency-Key": "k"}
            escaped = "".join(f"%{byte:02x}" for byte in text.encode(errors="surrogatepass"))
            assert api.get(f"/v1/jobs?text={escaped}", headers=headers).status_code == 422
            said = {"Content-Type": "application/json", **headers}
            body = json.dumps({"text": text})
            assert api.post("/v1/missions/1/say", content=body, headers=said).status_code == 422
            assert anyio.run(_refusal, McpDoor(engine, Listed()), text) == "INVALID_ARGUMENT"
            with pytest.raises(RequestError, match="is unknown"):
                asyncio.run(agent.load_session(str(tmp_path), text))
            assert engine.decisions(by=text).rows == []
            assert (
                PageQueries(engine.instance).missions(before=None, status="", text=text, limit=1).rows == []
            )
        assert is_storable({"a\\u0000b": ["\U0001f600", 1, None]})


async def _refusal(door: McpDoor, text: str) -> str:
    async with Client(door.server, mode="legacy") as client:
        found = await client.call_tool("missions", {"session": text})
    return str((found.structured_content or {})["error"]["error_code"])
