"""Load what file kinds would only load when they need it: nothing can be loaded once they are confined."""

from __future__ import annotations

import codecs
from contextlib import suppress
from functools import cache
from importlib import import_module

from lcp_engine.core.patterns import compile_patterns

_CODECS = ("ascii", "utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "cp1252", "latin-1")
_LOADED_LATE = ("traceback", "linecache", "tokenize", "logging", "unicodedata", "pydantic.v1.utils")


@cache
def load_late() -> None:
    """Once for a process."""
    for name in _CODECS:
        codecs.lookup(name)
    for name in _LOADED_LATE:
        with suppress(ImportError):
            import_module(name)
    compile_patterns(["a/*/b", "[ab]c", "!d/"])
