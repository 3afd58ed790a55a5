"""Write docs/errors.md from the taxonomy of errors: `python tools/errors.py`."""

from __future__ import annotations

from pathlib import Path

from lcp_engine.errors import Code, ErrorType
from lcp_engine.feature import all_codes

PAGE = Path(__file__).resolve().parent.parent / "docs" / "errors.md"

TYPES = {
    ErrorType.INPUT: "The request cannot be carried out as given.",
    ErrorType.EXECUTION: "It was started and could not be finished.",
    ErrorType.RESOURCE: "Something is used up, too large or busy.",
    ErrorType.PERMISSION: "It is not allowed.",
    ErrorType.TIMEOUT: "It took too long.",
    ErrorType.SYSTEM: "Something that the engine depends on does not work.",
}


def page() -> str:
    """The whole page in Markdown."""
    lines = [
        "# Errors",
        "",
        "Written by `python tools/errors.py` from `src/lcp_engine/errors.py` and the codes that features state.",
        'Every error has one of these: on stderr, in `--json` as `{"error": …}`, in the `error` of a job or mission.',
        "Python programs catch the class, a subclass of `LcpError`. The message names the thing, the fact and the",
        "expectation. An attempt that ends with a code marked *retried* is repeated with backoff, up to the number",
        "of attempts of its kind; with any other code the job fails at once.",
        "",
        "*What to do* is the general advice. Where another helps more, the error itself states that in",
        "`recommended_actions`. What a planner suggests when it gives up is stated there, too.",
    ]
    for error_type, sentence in TYPES.items():
        lines += [
            "",
            f"## `{error_type}`",
            "",
            sentence,
            "",
            "| code | class | means | what to do | retried |",
        ]
        lines += [
            "|---|---|---|---|---|",
            *(_row(code) for code in all_codes() if code.meaning.type is error_type),
        ]
    return "\n".join(lines) + "\n"


def _row(code: Code) -> str:
    meaning = code.meaning
    retried = "yes" if meaning.retry else ""
    return f"| `{code}` | `{meaning.error.__name__}` | {meaning.text} | {meaning.advice} | {retried} |"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
