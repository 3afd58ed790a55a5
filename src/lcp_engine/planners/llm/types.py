"""Define what is said to a language model, what comes back, and how a model is reached."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from pydantic import SecretStr

Role: TypeAlias = Literal["system", "user", "assistant"]


@dataclass(frozen=True)
class Message:
    """One message of a conversation."""

    role: Role
    content: str


@dataclass(frozen=True)
class Completion:
    """What a model wrote.

    `finish_reason` is `stop`, `length` (never to be parsed), another word of the server's, or None where it said
    none. Tokens are None where nobody counted. `reasoning` is kept apart; `text` is taken from it only where the
    server left the content empty.
    """

    text: str
    finish_reason: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    reasoning: str = ""


@dataclass(frozen=True)
class ModelSettings:
    """How to reach a model and what to ask of it.

    `endpoint` is a base URL without credentials (`http://127.0.0.1:1234/v1`); the key comes from the environment
    alone and shows itself nowhere. An empty `model` is the only one that the server has. Without `max_tokens` a reply
    has a quarter of the context, at most 4096. A `repeat_penalty` above 1 keeps small models from going in circles.
    `first_byte_seconds` is the longest silence, before the first byte and between two; `total_seconds` bounds a whole
    answer with everything that is tried again, and is less than what a turn may take. `concurrency` is per endpoint
    and process. `context_tokens` is None where the server is to say it.
    """

    endpoint: str
    model: str = ""
    key: SecretStr | None = field(default=None, repr=False)
    temperature: float | None = 0.0
    repeat_penalty: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    connect_seconds: float = 5.0
    first_byte_seconds: float = 240.0
    total_seconds: float = 540.0
    concurrency: int = 4
    context_tokens: int | None = None

    def scrub(self, text: str, *, shortest: int = 3) -> str:
        """`text` without the key, should a server have echoed it; keys under `shortest` characters are no secrets."""
        key = self.key.get_secret_value() if self.key else ""
        return text.replace(key, "…") if len(key) >= shortest else text
