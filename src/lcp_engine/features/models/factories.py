"""Make the planners `openai` and `anthropic` from their options."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass as plain_dataclass
from dataclasses import replace
from functools import cached_property, partial
from importlib.util import find_spec

from pydantic.dataclasses import dataclass

from lcp_engine.core.limits.permits import Limit
from lcp_engine.errors import ErrorCode, LcpError, install
from lcp_engine.features.models.endpoints import anthropic_messages, openai_chat
from lcp_engine.features.models.endpoints.chat import Chat, ModelSettings
from lcp_engine.features.models.endpoints.complete import MORE_ROOM, Answering
from lcp_engine.features.models.endpoints.http import Exchange
from lcp_engine.features.models.endpoints.token_count import tokenizer_of
from lcp_engine.features.models.options import (
    ANTHROPIC,
    OPENAI,
    STRICT,
    Guidance,
    OpenAIOptions,
    Provider,
    Remote,
    RemoteOptions,
    Stated,
    read_remote,
    remote_settings,
    require_key,
    server_wait,
    shared_limit,
)
from lcp_engine.features.models.planner import ModelPlanner, Wording
from lcp_engine.planners.base import MAX_WAIT, Planner, Question, Reply
from lcp_engine.planners.environment import EMPTY_ENVIRONMENT, PlannerEnvironment


@dataclass(frozen=True, kw_only=True, config=STRICT)
class OpenAIPlanner(OpenAIOptions):
    """The planner `openai`: any server that speaks OpenAI's chat completions."""

    def __post_init__(self) -> None:
        require("openai", {"httpx2": INSTALL_LLM})

    def answer(self, question: Question, /) -> Reply:
        return self._alone.answer(question)

    def placed(self, planner_environment: PlannerEnvironment, /) -> Planner:
        return _placed(OPENAI, self, openai_planner, planner_environment)

    @cached_property
    def _alone(self) -> Planner:
        return self.placed(EMPTY_ENVIRONMENT)


@dataclass(frozen=True, kw_only=True, config=STRICT)
class AnthropicPlanner(RemoteOptions):
    """The planner `anthropic`: Anthropic's messages."""

    def __post_init__(self) -> None:
        require("anthropic", {"httpx2": INSTALL_LLM})

    def answer(self, question: Question, /) -> Reply:
        return self._alone.answer(question)

    def placed(self, planner_environment: PlannerEnvironment, /) -> Planner:
        return _placed(ANTHROPIC, self, anthropic_planner, planner_environment)

    @cached_property
    def _alone(self) -> Planner:
        return self.placed(EMPTY_ENVIRONMENT)


@plain_dataclass(frozen=True)
class Placed:
    """A planner that is made when it is first asked: only then is the key needed, or the model loaded."""

    make: Callable[[], ModelPlanner]
    context_tokens: int | None
    limit: tuple[str, Limit] | None = None
    model: str = ""
    server: Callable[[], tuple[str, float]] = lambda: ("", MAX_WAIT)

    def model_name(self) -> str:
        return self.model

    def endpoint_limit(self) -> tuple[str, Limit] | None:
        return self.limit

    def server_wait(self) -> tuple[str, float]:
        return self._server

    def most_tokens(self) -> int | None:
        return None if self.context_tokens is None else self.context_tokens * (MORE_ROOM + 1)

    def answer(self, question: Question, /) -> Reply:
        return self.model_planner.answer(question)

    @cached_property
    def _server(self) -> tuple[str, float]:
        return self.server()

    @cached_property
    def model_planner(self) -> ModelPlanner:
        """The planner itself. Raises what `make` raises."""
        return self.make()


def _placed(
    provider: Provider,
    options: Remote,
    make: Callable[[Remote, Mapping[str, str], PlannerEnvironment], ModelPlanner],
    around: PlannerEnvironment,
) -> Placed:
    stated, settings = _read(provider, options, os.environ, around)
    return Placed(
        lambda: make(options, os.environ, around),
        settings.context_tokens,
        shared_limit(stated, settings),
        settings.model,
        partial(server_wait, settings),
    )


def _read(
    provider: Provider, options: Remote, environment: Mapping[str, str], around: PlannerEnvironment | None
) -> tuple[Stated[Remote], ModelSettings]:
    """The options of mission, environment and user's configuration. Raises `INVALID_ARGUMENT`."""
    user = {} if around is None else around.options.get(provider.name, {})
    stated = read_remote(provider, options, environment, user)
    return stated, remote_settings(provider, stated, environment)


def openai_planner(
    options: OpenAIOptions, environment: Mapping[str, str], around: PlannerEnvironment | None = None
) -> ModelPlanner:
    """The planner, which shares what is known of endpoints with those `around`. Raises `INVALID_ARGUMENT`."""
    stated, settings = _read(OPENAI, options, environment, around)
    require_key(OPENAI, settings)
    # A context that is assumed, not stated or reported, says nothing of the model's size.
    is_assumed = settings.context_tokens is not None and "context_tokens" not in stated.values()
    guidance = Guidance.OFF if is_assumed and stated.guidance is Guidance.AUTO else stated.guidance
    return over_openai_chat(settings, narrow=stated.is_narrow, guidance=guidance, around=around)


def anthropic_planner(
    options: RemoteOptions, environment: Mapping[str, str], around: PlannerEnvironment | None = None
) -> ModelPlanner:
    """Like `openai_planner`, for Anthropic."""
    stated, settings = _read(ANTHROPIC, options, environment, around)
    require_key(ANTHROPIC, settings)
    exchange = Exchange(settings, anthropic_messages.headers(settings))
    chat = anthropic_messages.AnthropicMessages(exchange, settings)
    return _planner_of(chat, settings, narrow=stated.is_narrow, guidance=stated.guidance, around=around)


def over_openai_chat(
    settings: ModelSettings, *, narrow: bool, guidance: Guidance, around: PlannerEnvironment | None = None
) -> ModelPlanner:
    """The planner that asks for chat completions."""
    headers = openai_chat.headers(settings)
    chat = openai_chat.OpenAIChat(Exchange(settings, headers), settings)
    planner = _planner_of(chat, settings, narrow=narrow, guidance=guidance, around=around)
    return replace(planner, tokenizer=tokenizer_of(settings, headers))


def require(planner: str, modules: Mapping[str, str]) -> None:
    """Raises `NO_PLANNER` if a module is not installed; `modules` maps each to the command that installs it."""
    for module, command in modules.items():
        if find_spec(module) is None:
            package = module.replace("_", "-")
            message = f"planner {planner!r} needs the package {package}, which is not installed: {command}"
            raise LcpError(ErrorCode.NO_PLANNER, message, advice="Install the package with that command.")


INSTALL_LLM = install("llm")


def _planner_of(
    chat: Chat,
    settings: ModelSettings,
    *,
    narrow: bool,
    guidance: Guidance,
    around: PlannerEnvironment | None,
) -> ModelPlanner:
    from lcp_engine.features.models.prompts.guidance import OPEN, guide_of
    from lcp_engine.features.models.prompts.guided_prompt import write_guided
    from lcp_engine.features.models.prompts.prompt import for_context, write_prompt
    from lcp_engine.features.models.prompts.reply_schema import reply_schema

    def word(question: Question, budget: int, context: int, count: Callable[[str], int]) -> Wording:
        offered, dialect = for_context(question, budget), question.dialect
        guide = guide_of(offered) if narrow and guidance.guides(context) else None
        if guide is None or guide == OPEN:
            prompt = write_prompt(question, budget_tokens=budget, count=count, dialect=dialect)
        else:
            prompt = write_guided(offered, guide, budget_tokens=budget, count=count, dialect=dialect)
        cut, left_out = prompt.cut, prompt.left_out
        schema = reply_schema(offered, dialect, narrow=narrow, cut=cut, left_out=left_out, guide=guide)
        return Wording(prompt.messages, schema, prompt.record, is_guided=guide is not None)

    around = around or PlannerEnvironment()
    return ModelPlanner(Answering(chat, stored=around.probes), settings, word, drafts=around.drafts)
