"""Make the planners `openai` and `anthropic` from their options."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property
from importlib.util import find_spec

from pydantic import JsonValue
from pydantic.dataclasses import dataclass

from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.planners.base import Question, Reply
from lcp_engine.planners.llm import anthropic_messages, openai_chat
from lcp_engine.planners.llm.answering import Answering
from lcp_engine.planners.llm.chat import Chat
from lcp_engine.planners.llm.exchange import Exchange
from lcp_engine.planners.llm.message import ModelSettings
from lcp_engine.planners.llm.options import (
    ANTHROPIC,
    OPENAI,
    STRICT,
    OpenAIOptions,
    RemoteOptions,
    read_remote,
    remote_settings,
    require_key,
)
from lcp_engine.planners.llm.planner import ModelPlanner, Wording


@dataclass(frozen=True, kw_only=True, config=STRICT)
class OpenAIPlanner(OpenAIOptions):
    """The planner `openai`: any server that speaks OpenAI's chat completions."""

    def __post_init__(self) -> None:
        require("openai", {"httpx2": INSTALL_LLM})

    def answer(self, question: Question, /) -> Reply:
        return self._planner.answer(question)

    @cached_property
    def _planner(self) -> ModelPlanner:
        return openai_planner(self, os.environ)


@dataclass(frozen=True, kw_only=True, config=STRICT)
class AnthropicPlanner(RemoteOptions):
    """The planner `anthropic`: Anthropic's messages."""

    def __post_init__(self) -> None:
        require("anthropic", {"httpx2": INSTALL_LLM})

    def answer(self, question: Question, /) -> Reply:
        return self._planner.answer(question)

    @cached_property
    def _planner(self) -> ModelPlanner:
        return anthropic_planner(self, os.environ)


def openai_planner(
    options: OpenAIOptions, environment: Mapping[str, str], user: Mapping[str, JsonValue] = {}
) -> ModelPlanner:
    """The planner for what mission, environment and the user's configuration say. Raises `INVALID_ARGUMENT`."""
    stated = read_remote(OPENAI, options, environment, user)
    settings = remote_settings(OPENAI, stated, environment)
    require_key(OPENAI, settings)
    return over_openai_chat(settings, narrow=stated.is_narrow)


def anthropic_planner(
    options: RemoteOptions, environment: Mapping[str, str], user: Mapping[str, JsonValue] = {}
) -> ModelPlanner:
    """Like `openai_planner`, for Anthropic."""
    stated = read_remote(ANTHROPIC, options, environment, user)
    settings = remote_settings(ANTHROPIC, stated, environment)
    require_key(ANTHROPIC, settings)
    exchange = Exchange(settings, anthropic_messages.headers(settings))
    chat = anthropic_messages.AnthropicMessages(exchange, settings)
    return _planner_of(chat, settings, narrow=stated.is_narrow)


def over_openai_chat(settings: ModelSettings, *, narrow: bool) -> ModelPlanner:
    """The planner that asks for chat completions."""
    exchange = Exchange(settings, openai_chat.headers(settings))
    return _planner_of(openai_chat.OpenAIChat(exchange, settings), settings, narrow=narrow)


def require(planner: str, modules: Mapping[str, str]) -> None:
    """Refuse where a module is not installed; `modules` says how each is. Raises `NO_PLANNER`."""
    for module, command in modules.items():
        if find_spec(module) is None:
            package = module.replace("_", "-")
            message = f"planner {planner!r} needs the package {package}, which is not installed: {command}"
            raise LcpError(ErrorCode.NO_PLANNER, message)


INSTALL_LLM = "pip install 'lcp-engine[llm]'"


def _planner_of(chat: Chat, settings: ModelSettings, *, narrow: bool) -> ModelPlanner:
    from lcp_engine.planners.llm.prompt import write_prompt
    from lcp_engine.planners.llm.universal_wire import universal_wire_schema
    from lcp_engine.planners.llm.wire import wire_schema

    def word(question: Question, budget: int) -> Wording:
        prompt = write_prompt(question, budget_tokens=budget, dialect=question.dialect)
        schema = universal_wire_schema if question.dialect == "universal" else wire_schema
        return Wording(prompt.messages, schema(question, narrow=narrow, cut=prompt.cut))

    return ModelPlanner(
        answering=Answering(chat),
        settings=settings,
        word=word,
    )
