"""A key that a server echoes reaches neither output nor database, in whichever usual way it is spelled."""

from __future__ import annotations

import base64
import html
import json
import secrets
import string
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st
from pydantic import JsonValue
from tests.tables import table

from lcp_engine import Engine
from lcp_engine.errors import LcpError
from lcp_engine.features.models.endpoints.deadline import Deadline
from lcp_engine.features.models.endpoints.errors import words_of
from lcp_engine.features.models.endpoints.scrub import FRAGMENT, MARK, WINDOW, scrubbed, scrubbed_value

if TYPE_CHECKING:
    from tests.features.models.planners.conftest import FaultServer, Play

CANARY = "sk-canary-0123456789abcdefghij"
ENCODINGS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "upper case": str.upper,
    "JSON": lambda key: json.dumps(json.dumps(key)),
    "\\u": lambda key: "".join(f"\\u{ord(each):04x}" for each in key),
    "\\\\U": lambda key: "".join(f"\\\\u{ord(each):04X}" for each in key),
    "\\x": lambda key: "".join(f"\\x{ord(each):02x}" for each in key),
    "octal": lambda key: "".join(f"\\{ord(each):03o}" for each in key),
    "some \\u": lambda key: "".join(f"\\u{ord(each):04x}" if at % 3 else each for at, each in enumerate(key)),
    "percent": lambda key: "".join(f"%{ord(each):02X}" for each in key),
    "percent twice": lambda key: quote("".join(f"%{ord(each):02x}" for each in key)),
    "quoted": lambda key: quote(key, safe=""),
    "HTML": lambda key: "".join(f"&#{ord(each)};" for each in key),
    "HTML hex": lambda key: html.escape("".join(f"&#x{ord(each):x};" for each in key)),
    "base64": lambda key: base64.b64encode(key.encode()).decode(),
    "base64 of a header": lambda key: base64.urlsafe_b64encode(f"Bearer {key}".encode()).decode(),
    "base64 of a login": lambda key: base64.b64encode(f"me:{key}@".encode()).decode(),
    "base32": lambda key: base64.b32encode(key.encode()).decode(),
    "hex": lambda key: key.encode().hex(" "),
    "backwards": lambda key: key[::-1],
    "spaced": " ".join,
    "in lines": "\n".join,
    "in a list": lambda key: json.dumps([*key]),
    "zero width": "\u200b".join,
    "zero width in JSON": lambda key: json.dumps("\u200b".join(key)),
    "concatenated": lambda key: f'"{key[:9]}" + "{key[9:20]}" + "{key[20:]}"',
    "wrapped": lambda key: f"{key[:11]}\\n  {key[11:]}",
}
KEYS = st.text(string.ascii_letters + string.digits + "-_./+", min_size=24, max_size=200).filter(
    lambda key: sum(map(str.isalnum, key)) >= 24 and key[0].isalnum() and key[-1].isalnum()
)
SEED = 0 if settings().derandomize else secrets.randbits(32)
"""The same for every encoding: to compile the patterns of a key takes most of the time, and they are kept."""
AROUND = st.text(
    st.characters(exclude_categories=["Cs"], max_codepoint=0x2FFF).filter(lambda c: not c.isalnum())
)


def bare(text: str) -> str:
    return "".join(each for each in text.lower() if each in string.ascii_lowercase + string.digits)


@pytest.mark.turns(3)
@pytest.mark.parametrize("name", ENCODINGS)
@seed(SEED)
@settings(max_examples=40, deadline=None)
@given(key=KEYS, before=AROUND, after=AROUND)
def test_a_key_is_removed_in_every_encoding(name: str, key: str, before: str, after: str) -> None:
    told = ENCODINGS[name](key)
    left = scrubbed(f"the key: {before} {told} {after} was sent", key)
    assert "…" in left
    assert bare(told)[4:-4] not in bare(left)
    assert bare(key)[:FRAGMENT] not in bare(left)
    assert left.startswith("the key:")
    assert left.endswith("was sent")


@table("name", ENCODINGS)
def test_no_text_without_the_key_changes(name: str) -> None:
    text = ENCODINGS[name]("another text of about the same length, with sk-canary- in it")
    assert scrubbed(text, CANARY) == text


@table("end", ["", "…", "...", "****", '"', "\\u00", "%3", "\n[cut]", "<34 more>", '"}'])
@table("length", range(WINDOW, 23))
def test_what_is_left_of_a_key_at_a_cut_is_removed(length: int, end: str) -> None:
    key = "sk-qwzvkjhyxgqwzvkjhyxgpp"
    cut = key.replace("-", "")[:length]
    assert scrubbed(f"Incorrect key: {cut}{end}", key) == f"Incorrect key: …{end}"


def test_short_keys_are_words() -> None:
    assert scrubbed("LM Studio knows lm-studio", "lm-studio") == "LM Studio knows …"


@settings(max_examples=300, deadline=None)
@given(
    st.text(st.sampled_from('\\u0073sk-canary0123%&#;xamp\n"')),
    st.sampled_from([CANARY, "aaaaaaaaaaaaaaaaaaaaaaaaaaaa"]),
)
def test_any_text_can_be_scrubbed(text: str, key: str) -> None:
    assert key not in scrubbed(text, key)


def test_a_large_reply_is_scrubbed_in_linear_time() -> None:
    text = (CANARY[:-1].replace("-", "\\u002d") + "\\" * 40 + "%25" * 20) * 5_000
    assert "canary0123456789" not in bare(scrubbed(text, CANARY))


def test_the_words_of_a_server_are_scrubbed_before_they_are_cut() -> None:
    for before in range(240, 310):
        told = json.dumps({"error": {"message": "x" * before + " " + CANARY}})
        escaped = told.replace(CANARY, "".join(f"\\u{ord(each):04x}" for each in CANARY))
        for body in (told, escaped):
            said = words_of(body, lambda text: scrubbed(text, CANARY))
            assert CANARY[:WINDOW] not in said
            assert len(said) <= 300


ESCAPED = ENCODINGS["\\u"](CANARY)
DONE = '{"ok": true, "action": "mission_complete", "summary": "SAID"}'


def plays_of(faults: FaultServer) -> dict[str, tuple[Play, ...]]:
    half = len(CANARY) // 2
    deltas = [f'data: {{"choices":[{{"delta":{{"content":{json.dumps(part)}}}}}]}}\n\n' for part in (
        DONE.split("SAID", maxsplit=1)[0] + CANARY[:half], CANARY[half:] + DONE.split("SAID")[1])]  # fmt: skip
    whole = "".join(deltas) + 'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    refusal = f'{{"error": {{"message": "bad key {ESCAPED}"}}}}'.encode()
    event = b"data: " + refusal + b"\n\n"
    return {
        "a reply": (faults.says(DONE.replace("SAID", CANARY)),),
        "an escaped reply": (faults.says(DONE.replace("SAID", ESCAPED)),),
        "a reply in two deltas": (faults.sends(whole.encode()),),
        "an escaped key in no action": (faults.says(f'{{"your key": "{ESCAPED}"}}'),),
        "an error": (faults.sends(refusal, status=401, content_type="application/json"),),
        "a long error": (faults.refuses(400, "x" * 270 + CANARY),),
        "an error in a stream": (faults.sends(event),),
        "a refusal": (faults.says("y" * 190 + CANARY, key="refusal"),),
        "a line that is not an event": (faults.sends(f"data: {'z' * 280}{CANARY}\n\n".encode()),),
        "a header": (
            faults.sends(b"{}", status=302, content_type=CANARY, Location=f"http://127.0.0.1:1/{CANARY}"),
        ),
    }


@pytest.mark.parametrize("name", [
    "a reply", "an escaped reply", "a reply in two deltas", "an escaped key in no action", "an error", "a long error",
    "an error in a stream", "a refusal", "a line that is not an event", "a header",
])  # fmt: skip
def test_no_echo_reaches_the_database(
    faults: FaultServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("LCP_PLANNER_KEY", CANARY)
    monkeypatch.setenv("LCP_PLANNER_ENDPOINT", faults.url)
    faults.play(*plays_of(faults)[name])
    faults.models = (f"tiny {CANARY}",)
    (tmp_path / "root").mkdir()
    planner: JsonValue = {"type": "openai", "model": "tiny", "max_tokens": 100, "total_seconds": 1}
    with Engine(f"sqlite:///{tmp_path / 'lcp.db'}") as engine:
        mission = engine.launch({"goal": "g", "planner": planner}, root=tmp_path / "root")
        engine.work(until_idle=True)
        told = json.dumps(engine.mission(mission.id).json) + json.dumps(engine.turns(mission.id), default=str)
    assert faults.requests[0].headers["authorization"] == f"Bearer {CANARY}"
    stored = (
        b"".join(path.read_bytes() for path in tmp_path.glob("lcp.db*") if path.is_file()).decode("latin-1")
        + told
    )
    for spelled in (CANARY, ESCAPED, CANARY[:16], ESCAPED[:60]):
        assert spelled not in stored


def test_names_of_models_hold_no_key(faults: FaultServer, monkeypatch: pytest.MonkeyPatch) -> None:
    from lcp_engine.features.models.factories import openai_planner
    from lcp_engine.features.models.options import OpenAIOptions

    faults.models = (f"a-{CANARY}", f"b-{CANARY}")
    made = openai_planner(OpenAIOptions(), {"LCP_PLANNER_KEY": CANARY, "LCP_PLANNER_ENDPOINT": faults.url})
    with pytest.raises(LcpError) as refused:
        made.known_facts(Deadline(1e18, 600.0))
    assert "a-…, b-…" in str(refused.value)


@table(
    ("key", "number", "is_it"),
    [("123456", 123456, True), ("123456", -123456.0, True), ("5e8237461", 1, False), ("sNaN123", 1, False)],
)
def test_a_key_is_found_as_a_number_whatever_number_it_could_be(
    key: str, number: float, *, is_it: bool
) -> None:
    assert scrubbed_value({"n": number}, [key]) == {"n": MARK if is_it else number}
