"""Write docs/errors.md from the taxonomy of errors: `python tools/errors.py`."""

from __future__ import annotations

from pathlib import Path

from lcp_engine.errors import MEANINGS, ErrorCode, ErrorType

PAGE = Path(__file__).resolve().parent.parent / "docs" / "errors.md"

TYPES = {
    ErrorType.INPUT: "What was asked for cannot be done as it was asked.",
    ErrorType.EXECUTION: "It was begun and could not be done.",
    ErrorType.RESOURCE: "Something is used up, too large or busy.",
    ErrorType.PERMISSION: "It is not allowed.",
    ErrorType.TIMEOUT: "It took too long.",
    ErrorType.SYSTEM: "Something the engine stands on does not work.",
}


def page() -> str:
    """The whole page in Markdown."""
    lines = [
        "# Errors",
        "",
        "Written by `python tools/errors.py` from `src/lcp_engine/errors.py`. Every error has one of these",
        'codes, wherever it appears: on stderr, in `--json` as `{"error": …}`, in the `error` of a job or a',
        "mission. The message beside it names the thing, the expectation and the fact. *Tried again* marks",
        "errors that a retry can help: an attempt that ends with one is repeated with backoff, up to the",
        "kind's number of attempts; the others fail the job at once.",
    ]
    for error_type, sentence in TYPES.items():
        lines += ["", f"## `{error_type}`", "", sentence, "", "| code | means | what to do | tried again |"]
        lines += [
            "|---|---|---|---|",
            *(_row(code) for code in ErrorCode if MEANINGS[code].type is error_type),
        ]
    return "\n".join(lines) + "\n"


def _row(code: ErrorCode) -> str:
    meaning = MEANINGS[code]
    return f"| `{code}` | {meaning.text} | {meaning.advice} | {'yes' if meaning.retry else ''} |"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
