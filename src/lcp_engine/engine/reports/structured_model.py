"""Define the structured response: blocks, forms and progress for a program that shows a mission to a person."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator

_CHOSEN = ("radio", "checkbox", "select")


def _say_absent(schema: dict[str, JsonValue]) -> None:
    """An optional property is absent rather than null; only a milestone may be null."""
    properties = schema.get("properties")
    assert isinstance(properties, dict)
    for name, stated in properties.items():
        if name == "milestone" or not isinstance(stated, dict):
            continue
        kinds = [kind for kind in _alternatives(stated) if kind != {"type": "null"}]
        if len(kinds) == 1 and isinstance(kinds[0], dict):
            kept = {key: value for key, value in stated.items() if key not in ("anyOf", "default")}
            properties[name] = {**kinds[0], **kept}


def _alternatives(stated: dict[str, JsonValue]) -> list[JsonValue]:
    found = stated.get("anyOf")
    return found if isinstance(found, list) else []


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, json_schema_extra=_say_absent)


class TextBlock(_Part):
    """A piece of text; `content` is Markdown, `level` belongs to a heading."""

    type: Literal["paragraph", "heading", "list", "quote", "info", "warning", "success", "tip"]
    content: str
    level: Annotated[int, Field(ge=1, le=6)] | None = None


class Option(_Part):
    """One of the answers to choose from."""

    value: str
    label: str


class FormField(_Part):
    """One thing to fill in. `options` are needed where something is chosen."""

    id: str = Field(pattern="^[a-z][a-z0-9_]*$")
    type: Literal["radio", "checkbox", "select", "text", "textarea", "number"]
    label: str
    required: bool = False
    options: list[Option] | None = None
    placeholder: str | None = None
    help_text: str | None = None
    min: float | None = None
    max: float | None = None

    @model_validator(mode="after")
    def _has_options(self) -> Self:
        if self.type in _CHOSEN and not self.options:
            raise ValueError(f"a {self.type} needs options; {self.id} has none")
        return self


class Form(_Part):
    """A form that may always be skipped: what it asks can be said in plain words as well."""

    id: str
    title: str | None = None
    description: str | None = None
    fields: list[FormField]
    submit_label: str = "Submit"
    optional: bool = True


class Medium(_Part):
    """An image, a video or a sound; the engine shows none."""

    type: Literal["image", "video", "audio"]
    src: str
    alt: str | None = None
    caption: str | None = None


class NextStep(_Part):
    """What can be done now; the suggestions are commands that can be run as they are."""

    prompt: str | None = None
    suggestions: list[str] | None = None
    can_skip: bool = True


class Content(_Part):
    """All that is shown."""

    text_blocks: list[TextBlock]
    forms: list[Form] | None = None
    media: list[Medium] | None = None
    next_step: NextStep | None = None


class Progress(_Part):
    """How far the mission has come.

    `percentage` never falls. `newly_covered` and `milestone` tell what is new since event `since`; a program that asks
    the next time with `--since` and the `event` of this time gets each milestone once.
    """

    percentage: float | None = Field(default=None, ge=0, le=100)
    covered_topics: list[str] | None = None
    newly_covered: list[str] | None = None
    remaining_topics: int | None = None
    milestone: Literal["25%", "50%", "75%", "100%"] | None = None
    covered_total: int | None = Field(default=None, description="How many topics are covered, listed or not")
    since: int | None = Field(default=None, description="The event after which things are new")
    event: int | None = Field(default=None, description="The newest event that is known here")


class ModuleState(_Part):
    """Where the mission stands; its sections are its turns."""

    current_phase: str | None = None
    current_section: str | None = None
    sections_completed: int | None = None
    total_sections: int | None = None


class Meta(_Part):
    """What kind of response this is, and how far the mission has come."""

    response_type: Literal["educational", "conversational", "assessment", "summary", "error"]
    progress: Progress | None = None
    module_state: ModuleState | None = None
    emotion: Literal["neutral", "encouraging", "celebratory", "supportive", "informative"] | None = None


class StructuredResponse(_Part):
    """A mission at one moment, made by the engine from the history."""

    content: Content
    meta: Meta

    def as_json(self) -> dict[str, JsonValue]:
        """The object as it is published: what is not there is left out, but a milestone is null."""
        shown: dict[str, JsonValue] = self.model_dump(mode="json", exclude_none=True)
        if self.meta.progress is not None and self.meta.progress.milestone is None:
            meta = shown["meta"]
            assert isinstance(meta, dict)
            assert isinstance(meta["progress"], dict)
            meta["progress"]["milestone"] = None
        return shown
