"""Settings of notices: what is started, and which server is told, when a mission begins to wait. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Self

from pydantic import AfterValidator, BeforeValidator, Field

from lcp_engine.core.programs.commands import split_command
from lcp_engine.core.settings.feature_settings import FeatureSettings
from lcp_engine.core.settings.secret_source import SecretSource, check_address


class Webhook(SecretSource):
    """A server that is sent a notice whenever a mission starts to wait for a person."""

    url: Annotated[str, AfterValidator(check_address)] = Field(
        description="Where notices are sent by POST; `https`, or `http` on this machine."
    )


class NoticeSettings(FeatureSettings):
    """The command and the webhook that are told of waits."""

    on_wait: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], BeforeValidator(split_command)] = (
        Field(
            default=(),
            description="A command that a runner starts when a mission begins to wait for a person; a text is "
            "split as a shell would.",
        )
    )
    webhook: Webhook | None = Field(
        default=None,
        description="Where runners send what waits when a mission begins to wait for a person (approvals.md).",
    )

    def placed(self, place: Callable[[str], str]) -> Self:
        """The same with an absolute file of the secret."""
        return self.model_copy(update={"webhook": self.webhook and self.webhook.placed(place)})

    def protected(self) -> Iterable[str]:
        """The file with the secret: a job that reads it could speak for the engine."""
        return () if self.webhook is None else self.webhook.files
