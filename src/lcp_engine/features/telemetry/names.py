"""Names of spans, attributes and histograms, as OpenTelemetry's conventions for generative AI have them, and our own.

The conventions are in development and have no release of their own yet; these are those of November 2026, which build
on the semantic conventions 1.44.0.
"""

from __future__ import annotations

from typing import NamedTuple

SCOPE = "lcp_engine"
"""The name of what makes spans and metrics."""
OURS, GENAI, STABLE = "lcp-engine", "GenAI, 2026-11 (development)", "1.44.0 (stable)"


class Name(NamedTuple):
    """A name, the version of the conventions that it is from, and what has it."""

    name: str
    version: str
    of: str
    meaning: str


INVOKE_AGENT, CHAT, EXECUTE_TOOL = "invoke_agent", "chat", "execute_tool"
OPERATION, PROVIDER, AGENT = "gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.agent.name"
CONVERSATION, MODEL = "gen_ai.conversation.id", "gen_ai.request.model"
INPUT_TOKENS, OUTPUT_TOKENS = "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"
INPUT_MESSAGES, OUTPUT_MESSAGES = "gen_ai.input.messages", "gen_ai.output.messages"
TOOL, TOOL_TYPE, TOOL_CALL = "gen_ai.tool.name", "gen_ai.tool.type", "gen_ai.tool.call.id"
ARGUMENTS, RESULT = "gen_ai.tool.call.arguments", "gen_ai.tool.call.result"
ERROR = "error.type"
MISSION, JOB, ATTEMPT, TURN, RUNNER = (
    "lcp.mission.id",
    "lcp.job.id",
    "lcp.attempt",
    "lcp.turn",
    "lcp.runner.id",
)
OUTCOME, COST = "lcp.outcome", "lcp.cost"
CHAT_TIME, TOOL_TIME, AGENT_TIME = (
    "gen_ai.client.inference.duration", "gen_ai.execute_tool.duration", "gen_ai.invoke_agent.duration",
)  # fmt: skip
CLAIM_LATENCY, CUT = "lcp.claims.latency", "lcp.spans.cut"

NAMES = (
    Name(INVOKE_AGENT, GENAI, "span", "a mission, from its launch to its end"),
    Name(CHAT, GENAI, "span", "an attempt at a turn: the planner is asked, and its reply read"),
    Name(EXECUTE_TOOL, GENAI, "span", "an attempt at any other job"),
    Name(OPERATION, GENAI, "all", "one of these three"),
    Name(PROVIDER, GENAI, "mission, turn", "the name of the planner"),
    Name(AGENT, GENAI, "mission", "the name of the mission"),
    Name(CONVERSATION, GENAI, "all", "the session of the request, or else the uid of the mission"),
    Name(MODEL, GENAI, "turn", "the model that wrote the reply"),
    Name(INPUT_TOKENS, GENAI, "mission, turn", "tokens of the prompts"),
    Name(OUTPUT_TOKENS, GENAI, "mission, turn", "tokens of the replies"),
    Name(INPUT_MESSAGES, GENAI, "turn, if contents are asked for", "the prompt"),
    Name(OUTPUT_MESSAGES, GENAI, "turn, if contents are asked for", "the reply"),
    Name(TOOL, GENAI, "job", "its kind"),
    Name(TOOL_TYPE, GENAI, "job", "`function`"),
    Name(TOOL_CALL, GENAI, "job", "its id"),
    Name(ARGUMENTS, GENAI, "job, if contents are asked for", "its params"),
    Name(RESULT, GENAI, "job, if contents are asked for", "its result"),
    Name(ERROR, STABLE, "all that failed", "the error code, or the outcome of the mission"),
    Name(MISSION, OURS, "all", "the id of the mission in its database"),
    Name(JOB, OURS, "turn, job", "the id of the job"),
    Name(ATTEMPT, OURS, "turn, job", "the number of the attempt"),
    Name(TURN, OURS, "turn", "the number of the question"),
    Name(RUNNER, OURS, "turn, job", "the id of the runner"),
    Name(OUTCOME, OURS, "all", "how it ended"),
    Name(COST, OURS, "mission, turn", "what it cost, with its currency"),
    Name(CHAT_TIME, GENAI, "histogram", "seconds that planners took to reply, by planner and model"),
    Name(TOOL_TIME, GENAI, "histogram", "seconds of attempts at jobs, by kind"),
    Name(AGENT_TIME, GENAI, "histogram", "seconds of missions, by their name"),
    Name(CLAIM_LATENCY, OURS, "histogram", "seconds from creation to first claim, by kind"),
    Name(
        CUT,
        OURS,
        "counter",
        "seconds in which a runner had too many attempts to make spans of all",
    ),
)
"""All of them, as docs/telemetry.md lists them."""
