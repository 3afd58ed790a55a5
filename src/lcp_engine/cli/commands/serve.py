"""Serve the web page (`lcp serve`)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Protocol

import click

from lcp_engine.cli.base import Count, Invocation, LcpCommand, pass_invocation
from lcp_engine.cli.console.exits import Exit
from lcp_engine.cli.console.output import drop_unwritten_output, print_err, print_json_line, print_out
from lcp_engine.cli.console.signals import POLL_SECONDS, catching_interrupts
from lcp_engine.errors import ErrorCode, LcpError, install

if TYPE_CHECKING:
    from lcp_engine.api.engine import Engine
    from lcp_engine.features.http_api.settings import ServeSettings
    from lcp_engine.web.access import Secrets
    from lcp_engine.web.app import Door
    from lcp_engine.web.server import PageServer

LOOPBACK = ("127.0.0.1", "::1", "localhost")


class Work(Protocol):
    """The web server, or a runner."""

    def run(self) -> None: ...
    def stop(self) -> None: ...


@click.command(
    "serve",
    cls=LcpCommand,
    examples=(
        "lcp serve",
        "lcp serve --threads 4          also execute jobs",
        "lcp serve --api --root .       also let programs in, and launch missions here",
        "lcp serve --port 0             on any free port",
    ),
)
@click.option(
    "--host", metavar="ADDRESS", default="127.0.0.1", show_default=True, help="The address to listen on."
)
@click.option(
    "--port", type=Count(0, 65535), default=8470, show_default=True, help="The port; 0: any free port."
)
@click.option("--name", "names", multiple=True, metavar="HOST[:PORT]",
              help="Another host name for the page; may be repeated.")  # fmt: skip
@click.option("--threads", type=Count(0, 256), metavar="N", default=0, show_default=True,
              help="Also execute jobs, N at a time; with 0 only runners elsewhere (`lcp work`) do.")  # fmt: skip
@click.option("--api", is_flag=True, help="Also serve the HTTP API for programs, below /v1.")
@click.option("--root", "roots", type=click.Path(exists=True, file_okay=False), multiple=True, metavar="DIR",
              help="With --api: a directory over which programs may launch missions; may be repeated.")  # fmt: skip
@click.option("--mission", "missions", multiple=True, metavar="MISSION",
              help="With --api: a mission that programs may launch, a file or shipped; may be repeated.")  # fmt: skip
@click.option("--evals", type=click.Path(exists=True, file_okay=False, path_type=Path), metavar="DIR",
              help="Show the evaluation in DIR, or those beneath it, that `lcp eval run` has made.")  # fmt: skip
@click.option("--sign-out", is_flag=True,
              help="Make new keys first: each browser needs a link again.")  # fmt: skip
@pass_invocation
def serve_command(
    invocation: Invocation,
    *,
    host: str,
    port: int,
    names: Sequence[str],
    threads: int,
    api: bool,
    roots: Sequence[str],
    missions: Sequence[str],
    evals: Path | None,
    sign_out: bool,
) -> int:
    """Serve a web page to inspect missions and decide on held jobs, and print its link.

    The link gives one browser access to the page, once: keep it secret. When it has been used, the next one is printed.
    A browser keeps its access when the server is started again with the same database and port, for 30 days.
    For a browser that does not find names below localhost, use --name localhost. With --api programs use the engine by
    tokens (`lcp tokens`); without one, a token for this start is printed, once, and only this machine is served.
    SIGTERM and the first Ctrl-C stop the server.
    """
    server_type = _load()
    from lcp_engine.features.http_api.settings import ApiSettings

    stated = invocation.settings.of(ApiSettings).serve
    if not (api or stated.api) and (roots or missions):
        raise click.UsageError("--root and --mission need --api", click.get_current_context())
    stated = stated.model_copy(
        update={"roots": (*stated.roots, *roots), "missions": (*stated.missions, *missions)}
    )
    with invocation.engine() as engine, catching_interrupts() as interrupts:
        opened = [path for path, is_open in (("/v1", api or stated.api), ("/mcp", stated.mcp)) if is_open]
        gate = engine.tokens.gate(only_here=host in LOOPBACK) if opened else None
        doors = {path: _door(path, engine, stated, gate) for path in opened}
        server = server_type(
            engine, host=host, port=port, names=names, announce=lambda link: _announce_next(invocation, link),
            secrets=_kept_secrets(engine.instance.url, anew=sign_out), evals=evals, doors=doors,
        )  # fmt: skip
        works: list[Work] = [server]
        if threads:
            works.append(engine.runner(threads=threads))
        with interrupts.draining(lambda: stop_together(works)):
            _announce(invocation, server, host)
            announce_token(invocation, None if gate is None else gate.token)
            run_together(works)
    return Exit.DONE


def _load() -> type[PageServer]:
    try:
        from lcp_engine.web.server import PageServer
    except ModuleNotFoundError as missing:
        if (missing.name or "").startswith("lcp_engine"):
            raise
        message = f"the page needs the extra 'web' ({missing.name} is missing): {install('web')}"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, message, advice=f"{install('web')}.") from missing
    return PageServer


def _door(path: str, engine: Engine, stated: ServeSettings, gate: object) -> Door:
    """The door below a path. Raises `NOT_INSTALLED`, and what opening it raises."""
    from lcp_engine.feature import installed, load

    place = installed().doors.get(path)
    if place is None:
        raise LcpError(ErrorCode.NOT_INSTALLED, f"no installed feature serves programs below {path}")
    opened: Door = load(place, FunctionType)(engine, stated, gate)
    return opened


def announce_token(invocation: Invocation, token: str | None) -> None:
    """Print the token that a server has made for itself: once, as it is kept nowhere."""
    if token is None:
        return
    if invocation.json:
        print_json_line({"token": token})
        return
    print_out(token)
    sys.stdout.flush()
    if not invocation.quiet:
        print_err(
            "this is a token for programs until the server ends, shown once; `lcp tokens add` adds others"
        )


def _kept_secrets(url: str, *, anew: bool) -> Secrets | None:
    """The keys of the last start, or new ones that are kept; None if they cannot be."""
    from lcp_engine.web.kept_keys import kept_secrets, keys_file

    path = keys_file(url)
    try:
        return kept_secrets(path, anew=anew)
    except OSError as refused:
        print_err(
            f"browsers will need a link again after a restart: {path} cannot be written: {refused.strerror}"
        )
        return None


def _announce(invocation: Invocation, server: PageServer, host: str) -> None:
    _print_link(invocation, server.link)
    if not (invocation.quiet or invocation.json):
        print_err("the link gives one browser access to the page: keep it secret; Ctrl-C stops the server")
    if server.has_shared_name:
        print_err("its cookie goes to every port of this machine that the browser opens by the same name")
    if host not in LOOPBACK:
        print_err(f"{host} may be reachable from other machines, and the connection is not encrypted")


def _announce_next(invocation: Invocation, link: str) -> None:
    # The page goes on when nothing reads its links any more, and ends well in the end.
    try:
        if not (invocation.quiet or invocation.json):
            print_err("a browser has used the link; this one is for another browser:")
        _print_link(invocation, link)
    except OSError:
        drop_unwritten_output()
    except ValueError:
        return


def _print_link(invocation: Invocation, link: str) -> None:
    if invocation.json:
        print_json_line({"link": link})
    else:
        print_out(link)
        sys.stdout.flush()


def run_together(works: Sequence[Work]) -> None:
    """Run all until one ends, then stop the others. Re-raises the error that ended it."""
    with ThreadPoolExecutor(len(works), thread_name_prefix="lcp-serve") as pool:
        running = [pool.submit(work.run) for work in works]
        try:
            while not wait(running, timeout=POLL_SECONDS, return_when=FIRST_COMPLETED).done:
                pass
        finally:
            stop_together(works)
    for done in running:
        done.result()


def stop_together(works: Sequence[Work]) -> None:
    for work in works:
        work.stop()
