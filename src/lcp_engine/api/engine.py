"""The engine for programs: the calls of the kernel and of all features."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcp_engine.api.history import History
from lcp_engine.api.kernel_engine import KernelEngine
from lcp_engine.feature import installed, load_all

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from pydantic import BaseModel, JsonValue

    from lcp_engine.clock import Clock
    from lcp_engine.core.limits.prices import Prices
    from lcp_engine.core.policy import Rule
    from lcp_engine.core.programs.network import NetworkGrant
    from lcp_engine.core.settings.feature_settings import FeatureSettings
    from lcp_engine.features.approvers.calls import LinkCalls
    from lcp_engine.features.approvers.settings import SignedLinks
    from lcp_engine.features.memory.calls import MemoryCalls
    from lcp_engine.features.notices.settings import Webhook
    from lcp_engine.features.replay.calls import ReplayCalls
    from lcp_engine.features.rules.calls import RuleCalls
    from lcp_engine.features.schedules.calls import ScheduleCalls
    from lcp_engine.features.tokens.calls import TokenCalls
    from lcp_engine.features.upkeep.settings import Upkeep
    from lcp_engine.planners.base import Planner
    from lcp_engine.planners.environment import Factory
    from lcp_engine.sandbox.system.landlock import Isolation
    from lcp_engine.workers.base import Caps, Worker

    class _Calls(RuleCalls, ScheduleCalls, ReplayCalls, MemoryCalls, LinkCalls, TokenCalls):
        def __init__(
            self,
            database_url: str,
            *,
            workers: Sequence[Worker[BaseModel]] = (),
            user_rules: Sequence[Rule] = (),
            caps: Caps | None = None,
            clock: Clock | None = None,
            busy_seconds: float = 30.0,
            away_seconds: float | None = None,
            planners: Mapping[str, Mapping[str, JsonValue] | Planner | Factory] | None = None,
            prices: Prices | None = None,
            on_wait: Sequence[str] = (),
            webhook: Webhook | None = None,
            links: SignedLinks | None = None,
            approvers: Mapping[str, str] | None = None,
            commands_read: Sequence[str | os.PathLike[str]] = (),
            commands_network: NetworkGrant | Mapping[str, JsonValue] | str | None = None,
            commands_wall: Sequence[str] | None = None,
            isolation: Isolation | str = Isolation.AUTO,
            upkeep: Upkeep | None = None,
            settings: Sequence[FeatureSettings] = (),
            **keys: object,
        ) -> None: ...

else:
    _places = (*installed().engine_calls, *installed().history_calls)
    _calls = [calls for _, calls in load_all(_places, type) if not issubclass(History, calls)]

    class _Calls(*_calls, KernelEngine):
        """The calls of the installed features; `History` may have been put together without those of packages."""


class Engine(_Calls, History):
    """The engine over one database. A context manager; its methods may be called from any thread.

    Leaving it, and `close`, stop its runners and wait for the jobs under way.

    - `database_url`: `sqlite:///PATH` or `postgresql://HOST/NAME`. A missing SQLite file is created, an older schema
      upgraded.
    - `workers`: custom kinds of jobs, beside the built-in and the installed ones. Default: none.
    - `user_rules`: policy rules of the user, after those of the mission, before the default policy (R5). Default: none.
    - `caps`: the most that one job may read, write, list and replace, in bytes and paths. Default: `Caps()`.
    - `clock`: a function that returns microseconds since 1970, for schedules and all times in the database. Default:
      the clock of the system (SQLite) or of the server (PostgreSQL).
    - `busy_seconds`: how many seconds to wait for a database that another process has locked. Default: 30.
    - `away_seconds`: how many seconds each call, also of a runner, waits for a database that was there and is away: its
      server restarts or cannot be reached, its disk is full or read-only; `math.inf`: as long as it takes. Default: 10
      for PostgreSQL, 0 for SQLite.
    - `planners`: by name, a planner of this program, or a class or function that makes one with the options of a
      mission as keyword arguments: missions name it as their planner's `type`, and only engines that were given it can
      go on with them. By type, a mapping has options for a planner, used where a mission states none. Default: none.
    - `prices`: what models cost, for `limits.max_cost` and for what missions are said to have cost. Default: none.
    - `on_wait`: a command, as a list of arguments, that a runner starts when a mission begins to wait for a person.
      Default: none.
    - `webhook`: where runners send a notice when a mission begins to wait for a person. Default: nowhere.
    - `links`: signed links, each of which decides one job (`Engine.links`), sent with notices. Default: none.
    - `approvers`: people who decide from afar: by name, `sha256:` and the SHA-256 of each one's token in hex. With any,
      signed links need a token. Default: none.
    - `commands_read`: files and directories that commands of missions may read and execute beside the system's, where
      they are there. Default: none.
    - `commands_network`: what missions may ask of the network for their commands, as in the configuration file: a
      `NetworkGrant`, a mapping `{"hosts": [NAME, …]}` or `"host"`. Default: nothing.
    - `commands_wall`: walls behind which commands may run, of "overlay", "copy" and "landlock"; the strongest of them
      that holds here is used. Default: any; overlay alone if isolation is required.
    - `isolation`: whether file kinds run in confined processes. Default, as on the command line: `Isolation.AUTO`,
      where the kernel has Landlock. With `Isolation.REQUIRE` runners raise `NOT_ISOLATED` on one without it. The plain
      strings "off", "auto" and "require" mean the same.
    - `upkeep`: what runners for all missions do regularly for the database: retention, backups, integrity checks.
      Default: nothing.
    - `settings`: values of models of features; of one model, the first counts. Default: none. Further keywords are
      keys of features, as in the configuration file; they count before `settings`.

    Raises `DATABASE_VERSION`, `DATABASE_FAILED`, and `INVALID_ARGUMENT` for a worker whose kind is taken or malformed,
    for a planner whose name is taken or that has no `answer`, for an unknown isolation, for a place that commands must
    not read, for a network that is none, for an unknown wall, and for a key of a feature; `NOT_INSTALLED` for one that
    no installed feature has.

    Methods that decide take `by`: the name that history records. Default: the user of this process.
    """
