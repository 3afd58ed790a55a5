"""Values of the configuration, and what runs where: contacts, networks, prices, upkeep, runners."""

from __future__ import annotations

from lcp_engine.core.limits.prices import Price, Prices
from lcp_engine.core.programs.network import AllowedHost, NetworkGrant
from lcp_engine.features.approvers.settings import SignedLinks
from lcp_engine.features.notices.settings import Webhook
from lcp_engine.features.upkeep.settings import Backups, Checks, Retention, Upkeep
from lcp_engine.store.queries.records import ActiveRunner

__all__ = [
    "ActiveRunner",
    "AllowedHost",
    "Backups",
    "Checks",
    "NetworkGrant",
    "Price",
    "Prices",
    "Retention",
    "SignedLinks",
    "Upkeep",
    "Webhook",
]
