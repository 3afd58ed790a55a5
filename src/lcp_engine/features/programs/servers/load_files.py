"""Load kinds of jobs from files of the user: `lcp --workers FILE`, `--exec`, `LCP_WORKERS`, `workers` in config.yaml.

A Python file registers kinds with `@worker`; a YAML or JSON file describes kinds whose jobs programs execute.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, JsonValue

from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.features.programs.servers.external_worker import MODULE_OF_FILE, program_of
from lcp_engine.plug_ins import FileFailed, run_file
from lcp_engine.sandbox.system.own_places import protect
from lcp_engine.workers import registry
from lcp_engine.workers.base import Worker

if TYPE_CHECKING:
    from lcp_engine.features.programs.servers.mcp import McpServer

_ADVICE = "Correct the file; docs/kinds.md has an example."
_YAML = (".yaml", ".yml", ".json")
_SERVERS = "mcp"
"""The key of a YAML file that states MCP servers, and no kind."""
_LOADED: set[Path] = set()
_PROGRAMS: set[tuple[str, str]] = set()


def load_workers(file: Path) -> None:
    """Load a file of kinds, Python, YAML or JSON; each file once in a process.

    From then on no job of this process may read or write it, or the programs that it names. Raises `INVALID_ARGUMENT`
    if it cannot be read, raises an error, describes no kind, or names a program that is missing.
    """
    protect(file.expanduser())  # a job that writes it could run any code
    path = file.expanduser().resolve()
    if path in _LOADED:
        return
    if path.suffix not in (".py", *_YAML) or not path.is_file():
        raise _refusal(path, "a Python file (.py), or a YAML or JSON file (.yaml, .json), is expected")
    if path.suffix == ".py":
        _run(path)
    else:
        _describe(path)
    _LOADED.add(path)


def register_program(kind: str, command: str) -> None:
    """Register a kind of any params whose jobs a command line executes; each once in a process.

    The program is found from the current directory. Raises `INVALID_ARGUMENT`.
    """
    from lcp_engine.features.programs.servers.external_worker import kinds_in

    if (kind, command) not in _PROGRAMS:
        (worker,) = kinds_in({kind: {"command": command}}, Path.cwd())
        _register_programs([worker])
        _PROGRAMS.add((kind, command))


def read_servers(path: Path) -> dict[str, McpServer]:
    """The MCP servers that a file of kinds states, by name; a Python file states none. Raises `INVALID_ARGUMENT`."""
    with _naming(path):
        return {} if path.suffix not in _YAML else _read(path)[1]


def _describe(path: Path) -> None:
    """Register the kinds that a YAML file describes: all of them, or none."""
    from lcp_engine.features.programs.servers.external_worker import kinds_in

    with _naming(path):
        kinds, servers = _read(path)
        workers = [*kinds_in(kinds, path.parent)] if kinds or not servers else []
        if servers:
            from lcp_engine.features.programs.servers.mcp import read_tools, tool_kinds, tools_file

            kept = tools_file(path)
            protect(kept)
            known = read_tools(kept)
            for name, server in servers.items():
                workers += tool_kinds(name, server, known, path.parent)
        _register_programs(workers)


def _read(path: Path) -> tuple[JsonValue, dict[str, McpServer]]:
    """What a YAML file says of kinds, and its MCP servers. Raises `NotReadable`, OSError, UnicodeDecodeError."""
    from lcp_engine.core.mission.yaml import read_document
    from lcp_engine.features.programs.servers.tool_definitions import definitions_in, kinds_of

    document = read_document(path.read_text(encoding="utf-8"))
    if (definitions := definitions_in(document)) is not None:
        return kinds_of(definitions), {}
    if not isinstance(document, dict) or _SERVERS not in document:
        return document, {}
    from lcp_engine.features.programs.servers.mcp import servers_in

    servers = servers_in(document[_SERVERS])
    return {kind: stated for kind, stated in document.items() if kind != _SERVERS}, servers


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Name the file in what is raised about its content."""
    from lcp_engine.core.mission.yaml import NotReadable

    try:
        yield
    except (NotReadable, OSError, UnicodeDecodeError) as refused:
        raise _refusal(path, str(refused)) from refused
    except LcpError as error:
        failed = error.failed
        message = f"workers {path}: {failed.message}"
        raise LcpError(failed.code, message, advice=failed.advice or _ADVICE) from error


def _register_programs(workers: Sequence[Worker[BaseModel]]) -> None:
    before = registry.registered_kinds()
    try:
        for worker in workers:
            registry.register(worker)
            for file in () if (program := program_of(worker)) is None else program.files:
                protect(Path(file))  # a job that writes it could run any code
    except LcpError:
        registry.unregister(registry.registered_kinds() - before)
        raise


def _run(path: Path) -> None:
    """Run a Python file, which registers kinds with `@lcp_engine.worker`."""
    before = registry.registered_kinds()
    try:
        run_file(path, MODULE_OF_FILE)
    except FileFailed as failed:
        registry.unregister(registry.registered_kinds() - before)
        raise _refusal(path, str(failed)) from failed
    if registry.registered_kinds() == before:
        raise _refusal(path, "it registers no kind of job; a function with `@lcp_engine.worker(…)` does")


def _refusal(path: Path, fact: str) -> LcpError:
    return LcpError(ErrorCode.INVALID_ARGUMENT, f"workers {path}: {fact}", advice=_ADVICE)
