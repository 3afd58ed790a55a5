"""List the notices of the webhook and what became of them, and send one as a test (`lcp deliveries`)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from lcp_engine.cli.base import Count, Invocation, LcpCommand, pass_invocation
from lcp_engine.cli.console.exits import Exit
from lcp_engine.cli.console.output import local_time, print_err, print_json, print_out, when
from lcp_engine.cli.tables import Table, fact_column, id_column, number_column, print_table, text_column
from lcp_engine.core.health import Finding, doubtful
from lcp_engine.errors import Code, ErrorCode, ErrorType, ExecutionFailed, LcpError, Meaning

if TYPE_CHECKING:
    from lcp_engine.settings import Settings

WEBHOOK_FAILED = Code(Meaning(
    "WEBHOOK_FAILED", ExecutionFailed, ErrorType.EXECUTION,
    "The webhook's server did not take a notice that was sent as a test.",
    "Check the address, the server and the secret that it verifies with; then send the test again.",
))  # fmt: skip
UNSENT_SECONDS = 60
"""A notice that was not sent for so long is reported."""

DEFAULT_LIMIT = 20


@click.command(
    "deliveries",
    cls=LcpCommand,
    examples=("lcp deliveries", "lcp deliveries --limit 5 --json", "lcp deliveries send-test"),
)
@click.argument("action", required=False, type=click.Choice(["send-test"]), metavar="[send-test]")
@click.option(
    "--limit", type=Count(1), metavar="N", help=f"The newest N notices.  [default: {DEFAULT_LIMIT}]"
)
@pass_invocation
def deliveries_command(invocation: Invocation, action: str | None, limit: int | None) -> int:
    """List the notices for the webhook of the configuration, newest first, and what became of each.

    unsent: it is sent now, or again after a failure. delivered: the server took it. outdated: its mission did not wait
    any more, or waited anew, when its turn came. given_up: the server did not take it for a day.

    `lcp deliveries send-test` sends a signed notice of no mission now, and prints what the server answers.
    """
    if action is None:
        return _list(invocation, limit or DEFAULT_LIMIT)
    if limit is not None:
        raise click.UsageError("--limit belongs to the list; send-test sends one notice")
    return _send_test(invocation)


def _send_test(invocation: Invocation) -> int:
    from lcp_engine.clock import system_clock
    from lcp_engine.features.notices.settings import NoticeSettings
    from lcp_engine.features.notices.webhook import send_test
    from lcp_engine.settings import config_path

    webhook = invocation.settings.of(NoticeSettings).webhook
    if webhook is None:
        message = f"no webhook is configured; {config_path()} is expected to have `webhook`"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, message, advice="docs/approvals.md shows one.")
    host = urlsplit(webhook.url).hostname  # the path of an address may contain a secret
    answer = send_test(webhook, system_clock())
    if answer.refusal is not None:
        message = f"webhook {host} did not take the test notice: {answer.refusal}"
        raise LcpError(WEBHOOK_FAILED, message)
    if invocation.json:
        print_json({"http_status": answer.status})
    else:
        print_out(f"{host} took the test notice and answered {answer.status}.")
    return Exit.DONE


def _list(invocation: Invocation, limit: int) -> int:
    with invocation.history() as history:
        found = history.deliveries(limit=limit)
    if invocation.json:
        print_json(found)
        return Exit.DONE
    if not found:
        if not invocation.quiet:
            print_err("No notices; `webhook` in config.yaml says where they are sent.")
        return Exit.DONE
    table = Table([
        id_column("notice"),
        id_column("mission"),
        fact_column("state"),
        number_column("tries"),
        fact_column("since"),
        text_column("answer", least=20),
    ])  # fmt: skip
    for one in found:
        table.add(
            str(one["id"]),
            str(one["mission_id"]),
            str(one["state"]),
            f"{one['attempts']}",
            when(str(one["created_at"])),
            str(one["error"] or one["http_status"] or "-"),
        )
    print_table(table, sys.stdout)
    return Exit.DONE


def examine_webhook(url: str, settings: Settings, is_current: bool) -> Iterator[Finding]:
    """The secret of the webhook, and notices that no runner has sent."""
    from lcp_engine.clock import SECOND, iso, system_clock
    from lcp_engine.features.approvers.secret_keys import examine_secret
    from lcp_engine.features.notices.settings import NoticeSettings
    from lcp_engine.features.notices.store.queries import untried
    from lcp_engine.store.db.open import opened

    webhook = settings.of(NoticeSettings).webhook
    if webhook is None:
        return
    yield examine_secret("webhook", webhook, webhook.url)
    now = system_clock()
    before, since = now - UNSENT_SECONDS * SECOND, now - 86_400 * SECOND
    if not is_current:
        return
    with opened(url, settings.busy_seconds) as database:
        found = database.read(lambda tx: untried(tx, before=before, since=since))
    if found:
        counts = " and ".join(
            f"{count} {state}, the oldest since {local_time(iso(since))}" for state, count, since in found
        )
        yield doubtful(
            "webhook",
            f"notices that were never sent: {counts}",
            "Keep a runner at work (`lcp work`) where this webhook is configured; "
            "`lcp deliveries send-test` tries the server.",
        )
