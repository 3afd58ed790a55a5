"""Hold what every page needs: the engine, the templates, the token of the forms, the moment of closing."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from jinja2 import Environment
from starlette.requests import Request
from starlette.responses import HTMLResponse

from lcp_engine.api import Engine
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.queries import pages

T = TypeVar("T")


@dataclass(frozen=True)
class Desk:
    """What the pages stand on."""

    engine: Engine
    templates: Environment
    csrf: str = field(repr=False)
    closing: threading.Event = field(default_factory=threading.Event)

    def page(self, template: str, *, status: int = 200, **values: object) -> HTMLResponse:
        """A template as an answer; every page shows how much waits."""
        held = self.read(pages.count_held)
        text = self.templates.get_template(template).render(csrf=self.csrf, held_count=held, **values)
        return HTMLResponse(text, status)

    def read(self, look: Callable[[Tx], T]) -> T:
        """A read on one consistent state of the database."""
        return self.engine.site.database.read(look)


def desk_of(request: Request) -> Desk:
    """The desk of the application that got the request."""
    desk: Desk = request.app.state.desk
    return desk
