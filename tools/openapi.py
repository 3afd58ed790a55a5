"""Write docs/openapi.json from the operations of the API: `python tools/openapi.py`."""

from __future__ import annotations

import json
from pathlib import Path

from lcp_engine.features.http_api.document import document

PAGE = Path(__file__).resolve().parent.parent / "docs" / "openapi.json"


def page() -> str:
    """The whole document as it is committed."""
    return f"{json.dumps(document(), indent=1)}\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
