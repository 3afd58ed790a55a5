"""Approve a job with a rule that lets such jobs run, in its mission or in all that are launched from now on."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lcp_engine.api.engine import Engine
    from lcp_engine.core.policy import Rule
    from lcp_engine.store.people import Sight


def add_rule_with_approval(
    engine: Engine, job_id: int, rule: Rule, scope: str, *, shown: Sight | None, by: str | None = None
) -> list[int]:
    """Approve the job, add the rule, for `user` to the configuration file as well; the other jobs that it approved.

    Raises like `Engine.approve_always` and `config_text.with_rule`, and then adds nothing; `FILE_SYSTEM` if the file
    cannot be written after all: the mission has the rule then.
    """
    from lcp_engine.api.config_text import with_rule
    from lcp_engine.settings import config_path

    of_user = with_rule(config_path(), rule) if scope == "user" else None
    released = engine.approve_always(job_id, rule, shown=shown, by=by)
    if of_user is not None:
        of_user.write()
    return released
