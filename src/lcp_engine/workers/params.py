"""Define params that several kinds share (R3)."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, create_model, model_validator
from pydantic_core import PydanticCustomError

from lcp_engine.errors import LcpError
from lcp_engine.sandbox.paths import Names, Place
from lcp_engine.sandbox.reading.encoding import canonical

_NOT_IN_NAMES = re.compile("[\x00-\x1f\x7f-\x9f]")


def _no_control_characters(text: str) -> str:
    if (found := _NOT_IN_NAMES.search(text)) is not None:
        raise PydanticCustomError(
            "control_character",
            "holds the control character U+{code} at {at}; in JSON a backslash is written twice",
            {"code": f"{ord(found[0]):04X}", "at": found.start()},
        )
    return text


def _no_surrogates(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        at = {"at": error.start}
        raise PydanticCustomError("surrogate", "holds half a surrogate pair at {at}", at) from error
    return text


def _known_encoding(name: str) -> str:
    try:
        canonical(name)
    except LcpError as error:
        raise PydanticCustomError("encoding", "{fact}", {"fact": error.failed.message}) from error
    return name


PathText = Annotated[str, Field(min_length=1), AfterValidator(_no_control_characters)]
PatternText = Annotated[str, Field(min_length=1), AfterValidator(_no_control_characters)]
ContentText = Annotated[str, AfterValidator(_no_surrogates)]
EncodingText = Annotated[str, AfterValidator(_known_encoding)]


class Params(BaseModel):
    """Params of a built-in kind: exact types, no unknown keys; a null where nothing is needed reads as absent."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class FileParams(Params):
    """One file: `rel_path`, beneath `root` where that is given, or `path`."""

    root: PathText | None = Field(
        default=None, description="The mission's root, an alias of it, or a directory in it."
    )
    rel_path: PathText | None = Field(default=None, description="The file, relative to root.")
    path: PathText | None = Field(
        default=None, description="The file, absolute or relative to root. Or rel_path."
    )

    @model_validator(mode="after")
    def _has_one_path(self) -> FileParams:
        if self.rel_path is None and self.path is None:
            raise PydanticCustomError("no_path", "rel_path or path is missing")
        if self.rel_path is not None and self.path is not None:
            raise PydanticCustomError("two_paths", "rel_path and path are both given, one is needed")
        return self

    def place(self, names: Names) -> Place:
        """Where the file lies. Raises `LcpError`."""
        return names.place(root=self.root, rel_path=self.rel_path, path=self.path)


class ContentParams(FileParams):
    """One file and its text, under either name."""

    content: ContentText | None = Field(
        default=None, description='The text to write; "" makes an empty file.'
    )
    new_content: ContentText | None = Field(default=None, description="The same as content.")
    encoding: EncodingText | None = Field(
        default=None, description="How to encode it; by default the file's encoding, UTF-8 for a new file."
    )

    @model_validator(mode="after")
    def _has_one_text(self) -> ContentParams:
        if self.content is None and self.new_content is None:
            raise PydanticCustomError(
                "no_content", 'content or new_content is missing; "" makes an empty file'
            )
        if None not in (self.content, self.new_content) and self.content != self.new_content:
            raise PydanticCustomError("two_contents", "content and new_content are the same field and differ")
        return self

    @property
    def text(self) -> str:
        """The text to write, under either name."""
        return self.content if self.content is not None else self.new_content or ""


def without(params: type[BaseModel], *names: str) -> type[BaseModel]:
    """Params as a small context offers them: without fields that are seldom needed."""
    fields = {
        name: (field.annotation, field) for name, field in params.model_fields.items() if name not in names
    }
    made: type[BaseModel] = create_model(params.__name__, __base__=Params, **fields)  # type: ignore[call-overload]  # fields by name
    return made


class Result(BaseModel):
    """A result of a built-in kind."""

    model_config = ConfigDict(frozen=True)

    ok: Literal[True] = True

    def whole(self) -> dict[str, JsonValue]:
        """The result with the keys that it leaves out because they say nothing new: references of plans find them."""
        left_out: dict[str, JsonValue] = {name: getattr(self, name) for name in type(self).model_fields}
        return {**left_out, **self.model_dump(mode="json")}


def requested_paths(params: FileParams) -> tuple[str, ...]:
    """The file that policy judges when the job is requested; `Names.relative` makes it relative to the root."""
    if params.path is not None:
        return (params.path,)
    name = params.rel_path or ""
    return (name if params.root is None else f"{params.root}/{name}",)
