"""Say when retention, backup and integrity check were done last, and when they are next."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from lcp_engine.cli.output import Fact, local_time
from lcp_engine.core.health import Finding, broken, doubtful, well
from lcp_engine.core.json_values import JsonValue
from lcp_engine.core.summaries import size
from lcp_engine.errors import ErrorCode, Failed

if TYPE_CHECKING:
    from lcp_engine.settings import Settings


def upkeep_facts(url: str, settings: Settings, busy_seconds: float) -> Iterator[Fact]:
    """Every duty that the configuration states. The database is at the newest version."""
    from lcp_engine.features.upkeep.chores import rhythms
    from lcp_engine.features.upkeep.settings import Upkeep
    from lcp_engine.features.upkeep.store.upkeep import duties
    from lcp_engine.store.maintenance.check import opened

    stated = rhythms(settings.of(Upkeep))
    if not stated:
        return
    with opened(url, busy_seconds) as database:
        known = database.read(duties)
    for duty, every in stated.items():
        row = known.get(duty)
        if row is None:
            yield Fact(duty, "not done yet: a runner for all missions (`lcp work`) does it", True, None)
            continue
        shown = row.json(every)
        found = shown["found"]
        about = found if isinstance(found, dict) else {}
        last = f"last {local_time(_text(shown['last_at']))}{_said(about)}" if found else "not done yet"
        text = f"{last}; next {local_time(_text(shown['next_at']))}"
        if row.error:
            text = f"failed {local_time(_text(shown['failed_at']))}: {row.error}; {text}"
        yield Fact(duty, text, not (row.error or about.get("faults")), shown)


def left_over_lines(url: str, busy_seconds: float) -> Iterator[tuple[str, str]]:
    """Stages and places of commands on this machine that nothing needs, and how each is removed.

    The database is at the newest version.
    """
    from lcp_engine.features.programs.command_places import left_over_walls
    from lcp_engine.features.stages.stages import left_over_stages
    from lcp_engine.store.host.liveness import stages_directory, wall_directory
    from lcp_engine.store.maintenance.check import opened

    with opened(url, busy_seconds) as database:
        for left in left_over_stages(database, stages_directory(url)):
            what = "stages" if left.mission_id is None else f"a stage of mission {left.mission_id},"
            fact = f"{what} {left.why}: {size(left.bytes)} in {left.path}"
            way = "" if left.mission_id is None else "`lcp work --until-idle` removes it when it is done, or "
            yield fact, f"{way}`rm -r {shlex.quote(str(left.path))}` removes {'them' if not way else 'it'}"
        for mission_id, place, why in left_over_walls(database, wall_directory(url)):
            fact = f"a place of commands of mission {mission_id}, {why}: {place}"
            yield fact, "`lcp work --until-idle` removes it when it is done"


def _said(found: Mapping[str, JsonValue]) -> str:
    """Finding of the last time."""
    match found:
        case {"file": str(file), "bytes": int(count)}:
            return f", {file} has {size(count)}"
        case {"missions": int(count)}:
            return f", {count:,} missions removed"
        case {"faults": int(count), "first": first}:
            return f", {count:,} faults, such as: {first}" if count else ", no faults"
        case _:
            return ""


def _text(value: JsonValue) -> str | None:
    return value if isinstance(value, str) else None


def examine_upkeep(url: str, settings: Settings, is_current: bool) -> Iterator[Finding]:
    """The directory of backups, what was done last, and what is left over on this machine."""
    from lcp_engine.features.upkeep.settings import Upkeep

    backup = settings.of(Upkeep).backup
    if backup is not None and backup.to is not None and not os.access(backup.to, os.W_OK | os.X_OK):
        fact = "is not writable" if Path(backup.to).is_dir() else "is not a directory"
        yield broken(
            "backup",
            Failed(
                ErrorCode.FILE_SYSTEM,
                f"backup.to {backup.to} {fact}; an existing, writable directory is expected",
                advice="Create it, or name another one in config.yaml.",
            ),
        )
    if not is_current:
        return
    for one in upkeep_facts(url, settings, settings.busy_seconds):
        if one.is_well:
            yield well(one.duty, one.text)
        else:
            yield doubtful(one.duty, one.text, "Correct what it names; runners try again by themselves.")
    for fact, way in left_over_lines(url, settings.busy_seconds):
        yield doubtful("stages", fact, f"{way}.")
