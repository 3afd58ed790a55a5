"""Ask MCP servers for their tools, and keep what they say (`lcp kinds --update`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel

from lcp_engine.core.policy import Policy
from lcp_engine.errors import GENERAL, ErrorCode, Failed, LcpError
from lcp_engine.features.programs.servers.external import ExternalPrograms
from lcp_engine.features.programs.servers.mcp import (
    LIST_TOOLS,
    McpServer,
    McpTool,
    ServerTools,
    bridge_to,
    read_tools,
    text_of_tools,
    tools_file,
)
from lcp_engine.sandbox.atomic_write import temporary_name
from lcp_engine.workers.base import Caps, Context, Worker, refuse_to_execute


@dataclass(frozen=True)
class ToolChange:
    """What has become of a tool since its server was asked before."""

    before: McpTool | None
    """None if it is new."""
    after: McpTool | None
    """None if it is gone."""

    @property
    def tool(self) -> McpTool:
        """The tool, as it is said to be last."""
        found = self.after or self.before
        assert found is not None
        return found

    @property
    def how(self) -> str:
        """The change in a word."""
        return "gone" if self.after is None else "changed" if self.before else "new"

    @property
    def changed(self) -> tuple[str, ...]:
        """What the server says otherwise of a tool that was there before."""
        if self.before is None or self.after is None:
            return ()
        before, after = self.before.stated, self.after.stated
        return tuple(key for key in {**before, **after} if before.get(key) != after.get(key))


class _Nothing(BaseModel):
    pass


def ask_for_tools(name: str, server: McpServer, base: Path) -> ServerTools:
    """The tools that a server has now; `base` is the directory of the file that states it. It is started for that.

    Raises `INVALID_ARGUMENT` for a program that is missing, and `LcpError` for a server that does not answer.
    """
    worker = Worker[BaseModel](
        kind=LIST_TOOLS,
        params=_Nothing,
        result=ServerTools,
        execute=refuse_to_execute("only a program is asked"),
        timeout=server.timeout,
        execution=bridge_to(name, server, base, {}),
    )
    judge = Policy().for_kind(worker.named, has_effects=False, writes=False)
    programs = ExternalPrograms()
    try:
        found = programs.execute(worker, _Nothing(), Context(None, (), judge, Caps()), None).outcome
    except LcpError as error:
        raise _about(name, error.failed, has_ended=True) from error
    finally:
        programs.close()
    if isinstance(found, Failed):
        raise _about(name, found)
    assert isinstance(found, ServerTools)
    return found


def changes_of(known: ServerTools | None, found: ServerTools) -> Iterator[ToolChange]:
    """What differs between what a server said before, None if it was never asked, and what it says now."""
    before = {} if known is None else {tool.name: tool for tool in known.tools}
    after = {tool.name: tool for tool in found.tools}
    for name in {**after, **before}:
        if before.get(name) != after.get(name):
            yield ToolChange(before.get(name), after.get(name))


def keep_tools(file: Path, servers: Mapping[str, McpServer], found: Mapping[str, ServerTools]) -> Path:
    """Write what servers of a file of kinds said, beside it; returns where. Servers that it has no more are forgotten.

    Servers that have never answered are noted, so that the file can be used without them. Raises `FILE_SYSTEM`.
    """
    place = tools_file(file)
    never = dict.fromkeys(servers, ServerTools(unanswered=True))
    kept = {name: tools for name, tools in {**never, **known_tools(file), **found}.items() if name in servers}
    new = place.with_name(temporary_name())
    try:
        new.write_text(text_of_tools(kept), encoding="utf-8")
        new.replace(place)
    except OSError as refused:
        new.unlink(missing_ok=True)
        raise LcpError(
            ErrorCode.FILE_SYSTEM, f"{place} cannot be written: {refused.strerror}", advice=GENERAL
        ) from refused
    return place


def known_tools(file: Path) -> Mapping[str, ServerTools]:
    """Tools kept of the servers of a file of kinds; none if they cannot be read, since they are written anew."""
    try:
        return read_tools(tools_file(file))
    except LcpError:
        return {}


def _about(name: str, failed: Failed, *, has_ended: bool = False) -> LcpError:
    message = (
        f"mcp.{name}: its tools could not be asked for: {failed.message.removeprefix(f'{LIST_TOOLS}: ')}"
    )
    if has_ended and failed.code in _SAYS_WHY and "stderr" not in failed.details:
        # Such as npx, if it has no network.
        message += "; it wrote nothing to stderr, and has only what its needs state"
    advice = (
        "Try the server's command by hand; it has only what its needs state. Install a server from npm first, and name "
        "its directory in needs.read (docs/kinds.md)."
    )
    return LcpError(failed.code, message, failed.details, advice=advice)


_SAYS_WHY = (ErrorCode.WORKER_FAILED, ErrorCode.TIMEOUT)
"""Codes of programs that state the reason in stderr, if at all."""
