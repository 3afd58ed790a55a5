"""Query the notices of the webhook."""

from __future__ import annotations

from lcp_engine.api.kernel_history import KernelHistory
from lcp_engine.core.json_values import JsonObject
from lcp_engine.features.notices.store.queries import find_deliveries


class DeliveryCalls(KernelHistory):
    """Calls about notices."""

    def deliveries(self, *, limit: int | None = None) -> list[JsonObject]:
        """The notices of the webhook and what became of each, newest first."""
        return self._read(find_deliveries, limit)
