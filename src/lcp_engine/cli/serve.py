"""Serve the page (`lcp serve`)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Protocol

import click

from lcp_engine.cli.base import Count, Exit, Invocation, LcpCommand, pass_invocation
from lcp_engine.cli.output import print_json_line, print_out, tell
from lcp_engine.cli.signals import LOOK_SECONDS, catching_interrupts
from lcp_engine.errors import ErrorCode, LcpError

if TYPE_CHECKING:
    from lcp_engine.web.server import PageServer

LOOPBACK = ("127.0.0.1", "::1", "localhost")


class _Work(Protocol):
    """The page, or a runner."""

    def run(self) -> None: ...
    def stop(self) -> None: ...


@click.command(
    "serve",
    cls=LcpCommand,
    examples=(
        "lcp serve",
        "lcp serve --threads 4          execute jobs as well",
        "lcp serve --port 0             on any free port",
    ),
)
@click.option(
    "--host", metavar="ADDRESS", default="127.0.0.1", show_default=True, help="The address to bind."
)
@click.option("--port", type=Count(0, 65535), default=8470, show_default=True, help="0: any free one.")
@click.option("--name", "names", multiple=True, metavar="HOST",
              help="Another name by which browsers reach the page; may be repeated.")  # fmt: skip
@click.option("--threads", type=Count(0, 256), metavar="N", default=0, show_default=True,
              help="Execute jobs as well, N at a time; with 0 somebody else works (lcp work).")  # fmt: skip
@pass_invocation
def serve_command(invocation: Invocation, host: str, port: int, names: Sequence[str], threads: int) -> int:
    """Serve a web page to look at missions and to decide what waits, and print its link.

    The link lets a browser in; keep it to yourself. SIGTERM and the first Ctrl-C end the page.
    """
    server_type = _load()
    with invocation.engine() as engine, catching_interrupts() as interrupts:
        server = server_type(engine, host=host, port=port, names=names)
        works: list[_Work] = [server]
        if threads:
            works.append(engine.runner(threads=threads))
        with interrupts.draining(lambda: _stop(works)):
            _announce(invocation, server.link, host)
            _run(works)
    return Exit.DONE


def _load() -> type[PageServer]:
    try:
        from lcp_engine.web.server import PageServer
    except ModuleNotFoundError as missing:
        if (missing.name or "").startswith("lcp_engine"):
            raise
        message = f"the page needs the extra 'web' ({missing.name} is missing): pip install 'lcp-engine[web]'"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, message) from missing
    return PageServer


def _announce(invocation: Invocation, link: str, host: str) -> None:
    if invocation.json:
        print_json_line({"link": link})
    else:
        print_out(link)
        sys.stdout.flush()
    if not (invocation.quiet or invocation.json):
        tell("the link lets a browser in; Ctrl-C ends the page")
    if host not in LOOPBACK:
        tell(f"{host} may be reached from other machines, and nothing between them and the page is encrypted")


def _run(works: Sequence[_Work]) -> None:
    """Run all until one ends, then stop the others. Raises what ended it."""
    with ThreadPoolExecutor(len(works), thread_name_prefix="lcp-serve") as pool:
        running = [pool.submit(work.run) for work in works]
        try:
            while not wait(running, timeout=LOOK_SECONDS, return_when=FIRST_COMPLETED).done:
                pass
        finally:
            _stop(works)
    for done in running:
        done.result()


def _stop(works: Sequence[_Work]) -> None:
    for work in works:
        work.stop()
