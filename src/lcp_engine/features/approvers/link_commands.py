"""Make a signed link that decides one held job (`lcp link`)."""

from __future__ import annotations

import click

from lcp_engine.cli.base import Invocation, LcpCommand, length_of, pass_invocation
from lcp_engine.cli.commands.completion import held_ids
from lcp_engine.cli.console.exits import Exit
from lcp_engine.cli.console.output import print_err, print_json, print_out


@click.command("link", cls=LcpCommand, examples=("lcp link 12", "lcp link 12 --for anna --expires 2h"))
@click.argument("job", type=int, shell_complete=held_ids, metavar="J")
@click.option("--for", "person", metavar="NAME", help="Only this approver, with their token, decides by it.")
@click.option(
    "--expires", metavar="TIME", help="For how long it can be used, such as 2h; without it, as configured."
)
@pass_invocation
def link_command(invocation: Invocation, job: int, person: str | None, expires: str | None) -> int:
    """Print a signed link that decides held job J, as it is now, once.

    Whoever has the link can decide that job, and nothing else, without access to the page: it opens a page of `lcp
    serve` that shows what the job would do. `links` in config.yaml says where that page is reached. Where there are
    approvers, the page asks for the token of one.
    """
    lasts = None if expires is None else length_of("--expires", expires, "30m, 2h or 1d")
    from lcp_engine.features.approvers.settings import ApproverSettings

    with invocation.engine() as engine:
        url = engine.links.make(job, person=person, expires=lasts)
    if invocation.json:
        print_json({"job_id": job, "url": url})
        return Exit.DONE
    print_out(url)
    if not invocation.quiet:
        whose = (
            "for whoever has it"
            if not engine.instance.settings(ApproverSettings).approvers
            else f"with the token of {person or 'an approver'}"
        )
        print_err(f"it decides job {job} once, {whose}; `lcp serve` shows its page")
    return Exit.DONE
