"""Settings of features: what each adds to the configuration, as a model whose fields are its keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Annotated, Self, TypeAlias, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationError,
)

from lcp_engine.clock import micros
from lcp_engine.core.refused_values import explain_first
from lcp_engine.core.times.recurrence import Every, read_every
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.feature import Unfit, absent, installed, leave_out, load_all


class FeatureSettings(BaseModel):
    """Keys of a feature in the configuration file: its fields, each of which has a default and a description."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def placed(self, place: Callable[[str], str]) -> Self:
        """The same with paths that `place` makes absolute, as they are relative to the file that states them."""
        return self

    def refuse(self) -> None:
        """Raise `INVALID_ARGUMENT` for what cannot be used on this machine."""

    def protected(self) -> Iterable[str]:
        """Paths that no job may touch."""
        return ()


M = TypeVar("M", bound=BaseModel)
S = TypeVar("S", bound=FeatureSettings)


def settings_in(stated: Iterable[FeatureSettings], model: type[S]) -> S:
    """The settings of a feature among those that are stated, or its defaults."""
    return next((one for one in stated if isinstance(one, model)), None) or model()


def models_of(stated: Mapping[str, tuple[str, str]], kind: type[M]) -> Sequence[type[M]]:
    """The models that have keys of features, each of which is stated with its place, as their fields.

    One of a package whose fields are others is left out.
    """
    keys: dict[str, set[str]] = {}
    for key, (place, _) in stated.items():
        keys.setdefault(place, set()).add(key)
    found = list[type[M]]()
    for place, model in load_all(keys, type):
        if issubclass(model, kind) and model.model_fields.keys() == keys[place] and not _requires(model):
            found.append(model)
        else:
            named = ", ".join(sorted(keys[place]))
            leave_out(place, Unfit(f"{kind.__name__} are expected with {named}, each with a default"))
    return found


def _requires(model: type[BaseModel]) -> bool:
    return any(one.is_required() for one in model.model_fields.values())


def with_fields(kernel: type[M], models: Sequence[type[BaseModel]]) -> type[M]:
    """The model `kernel` with the fields of others behind its own."""
    about = {"__doc__": kernel.__doc__, "__module__": kernel.__module__}
    whole = type(kernel.__name__, (*models, kernel), about)
    assert issubclass(whole, kernel)
    return whole


def read_keys(keys: Mapping[str, object], settings: Sequence[FeatureSettings]) -> list[FeatureSettings]:
    """The settings, after what keys state: None is not stated, settings as a value are taken whole.

    Raises `INVALID_ARGUMENT`, and `NOT_INSTALLED` for a key of no feature here.
    """
    found = [*(one for one in keys.values() if isinstance(one, FeatureSettings)), *settings]
    left = {key: one for key, one in keys.items() if not isinstance(one, FeatureSettings | None)}
    for model in models_of(installed().settings, FeatureSettings) if left else ():
        if own := {key: left.pop(key) for key in left.keys() & model.model_fields.keys()}:
            try:
                made = model.model_validate(own)
            except ValidationError as refused:
                raise LcpError(ErrorCode.INVALID_ARGUMENT, explain_first(refused, model)) from refused
            given = {key: getattr(made, key) for key in own}
            found.insert(0, settings_in(found, model).model_copy(update=given))
    for key in left:
        raise LcpError(
            ErrorCode.NOT_INSTALLED, f"{key}: {absent(key) or 'no installed feature has this key'}"
        )
    return found


_NAMED = {"hourly": "1h", "daily": "1d", "weekly": "1w"}
_EVERY = f"{', '.join(_NAMED)} or a duration such as 12h, 3d or 2w"


def _read_length(value: object) -> timedelta:
    """A duration as it is written in Python or in a file. Raises ValueError."""
    return value if isinstance(value, timedelta) else _length(value, value, "a duration such as 30d or 12w")


def _read_rhythm(value: object) -> timedelta:
    """Like `_read_length`, or `daily`. Raises ValueError."""
    if isinstance(value, timedelta):
        return value
    return _length(_NAMED.get(value, value) if isinstance(value, str) else value, value, _EVERY)


def _length(text: object, stated: object, expected: str) -> timedelta:
    try:
        return timedelta(microseconds=read_every(text if isinstance(text, str) else "").length)
    except LcpError:
        raise ValueError(f"{stated!r} is given; {expected} is expected") from None


_AsText = PlainSerializer(lambda length: Every(micros(length)).text, return_type=str)
_More = Field(gt=timedelta())
Length: TypeAlias = Annotated[
    timedelta, _More, BeforeValidator(_read_length, json_schema_input_type=str), _AsText
]
Rhythm: TypeAlias = Annotated[
    timedelta, _More, BeforeValidator(_read_rhythm, json_schema_input_type=str), _AsText
]
