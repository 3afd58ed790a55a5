"""What is said to a person's own programs when a mission starts to wait for a person. Pure."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from lcp_engine.core.protocol.envelope import Envelope, Time


class DiffStat(Envelope):
    """What a held job would change, in numbers."""

    path: str = Field(description="The file, relative to the root.")
    added: int = Field(description="Lines that are added.")
    removed: int = Field(description="Lines that are removed.")
    note: str | None = Field(default=None, description="What lines cannot say, such as a file that is moved.")
    is_whole: bool = Field(
        default=True, description="Whether the diff can be shown in full, and so be approved in a list."
    )


class JobLink(Envelope):
    """A signed link that decides the job once, as it is now."""

    url: str
    person: str | None = Field(default=None, description="Whose link it is, if it is one person's.")
    expires_at: Time


class HeldJob(Envelope):
    """A job that waits for a person."""

    id: int
    kind: str
    about: str = Field(description="What it is about, on one line.")
    name: str | None = Field(default=None, description="The planner's name for it.")
    path: str | None = Field(
        default=None, description="The file that it names, relative to the root where that is known."
    )
    reason: str = Field(description="Why it is held, in a sentence.")
    reason_code: str | None = Field(default=None, description="The same as a stable code.")
    words: str | None = Field(default=None, description="What the planner said when it asked for the job.")
    question: str | None = Field(default=None, description="Of a question: what it asks.")
    options: list[str] | None = Field(default=None, description="Of a question: the answers it offers.")
    diff: DiffStat | None = Field(default=None, description="What it would change; `lcp diff` has the lines.")
    caveat: str | None = Field(
        default=None, description="What cannot be told beforehand of its effect, or not be shown in full."
    )
    links: list[JobLink] | None = Field(
        default=None, description="What decides it without access to the page, where `links` is configured."
    )
    expires_at: Time | None = Field(default=None, description="When it is rejected without a decision.")


class WaitingMission(Envelope):
    """The mission that waits."""

    id: int
    uid: str
    name: str
    goal: str
    root: str | None = None


class Notice(Envelope):
    """A mission has started to wait for a person."""

    id: str = Field(description="The same for every delivery of this notice, and of no other one.")
    event: Literal["mission_waits", "test"] = Field(
        default="mission_waits", description="`test`: of no mission, sent by `lcp deliveries send-test`."
    )
    at: Time = Field(description="When the mission started to wait.")
    mission: WaitingMission
    held: int = Field(description="How many of its jobs wait.")
    jobs: list[HeldJob] = Field(description="Those jobs, the oldest first.")
    links_error: str | None = Field(default=None, description="Why there are no links, if there should be.")
    omitted: int = Field(default=0, description="How many of them are left out of the list.")
