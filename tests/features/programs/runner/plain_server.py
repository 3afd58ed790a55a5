"""An MCP server in plain Python, which starts in a tenth of the time of one of the SDK.

Its tools are functions with the decorator `tool`, in Python; their docstrings are their descriptions. What is added to
`MORE` is listed besides.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

from lcp_engine.features.programs.servers.mcp import McpTool, ServerTools

_SERVER = """
import json, os, subprocess, sys, threading, time
from inspect import getdoc

TOOLS = {}
MORE = []

def tool(function):
    TOOLS[function.__name__] = function
    return function

def answer(method, params):
    if method == "initialize":
        info = {"name": "plain", "version": "1.0"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        schema = {"type": "object"}
        return {
            "tools": [
                {"name": name, "description": getdoc(one) or "", "inputSchema": schema}
                for name, one in TOOLS.items()
            ] + MORE
        }
    value = TOOLS[params["name"]](**params.get("arguments", {}))
    text = value if isinstance(value, str) else json.dumps(value)
    return {"content": [{"type": "text", "text": text}], "structuredContent": {"result": value}}
"""
_SERVES = """
for line in sys.stdin:
    asked = json.loads(line)
    if "id" in asked:
        known = asked["method"] in ("initialize", "tools/list", "tools/call")
        said = {"result": answer(asked["method"], asked.get("params", {}))} if known else {
            "error": {"code": -32601, "message": "Method not found"}
        }
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **said}), flush=True)
"""


def write_plain_server(file: Path, tools: str) -> None:
    """Write a program that is a server with these tools."""
    file.write_text(_SERVER + textwrap.dedent(tools) + _SERVES)


def plain_tools(tools: str) -> ServerTools:
    """What such a server says of its tools."""
    module: dict[str, Callable[[str, dict[str, str]], dict[str, list[object]]]] = {}
    exec(_SERVER + textwrap.dedent(tools), module)  # our own words
    listed = module["answer"]("tools/list", {})["tools"]
    return ServerTools(server="plain 1.0", tools=tuple(map(McpTool.model_validate, listed)))
