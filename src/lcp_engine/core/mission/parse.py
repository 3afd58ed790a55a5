"""Read mission files: YAML or JSON, variables, settings, and errors in words. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Literal, NoReturn

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    StringConstraints,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails

from lcp_engine.core.mission.spec import (
    Limits,
    MissionSpec,
    mission_model,
    with_keys,
)
from lcp_engine.core.refused_values import Fault, details_of, explain, fact, is_missing, keys_at
from lcp_engine.core.summaries import nearest, nearest_name
from lcp_engine.errors import ErrorCode, Json, LcpError

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]*$")]
_VARIABLE = re.compile(r"\$\$\{|\$\{([A-Za-z_][A-Za-z0-9_.-]*)\}|\$\{")


class NotFilled(ValueError):
    """A variable has no value, or a placeholder is invalid; the message names it, in one line."""


class Variable(BaseModel):
    """A variable as a mission file declares it; a bare text is its description."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    description: str = Field(min_length=1, description="What it is for.")
    default: str | None = Field(
        default=None, description="Its value if none is given; without it, one has to be."
    )
    from_root: Literal["test_command", "test_environment"] | None = Field(
        default=None,
        description="Its value if none is given and the files of the root tell it: the command that runs the tests "
        "of a project, or the variables of its environment.",
    )

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: JsonValue) -> JsonValue:
        return {"description": value} if isinstance(value, str) else value


VARIABLES = TypeAdapter(dict[Name, Variable])


def _need_no_planner(schema: dict[str, JsonValue]) -> None:
    schema["required"] = ["goal"]


class MissionFile(MissionSpec):
    """A mission file before its variables are filled in and its planner is chosen, for its published schema."""

    model_config = ConfigDict(json_schema_extra=_need_no_planner)

    variables: dict[Name, str | Variable] = Field(
        default={}, description="The variables of the file by name: a description, or a mapping."
    )


@cache
def mission_file() -> type[MissionSpec]:
    """Model of a mission file, with the keys of all features."""
    return with_keys(MissionFile)


def with_defaults(declared: Mapping[str, Variable], given: Mapping[str, str]) -> dict[str, str]:
    """A value for every declared variable; a default may name variables that are declared before it.

    Raises `NotFilled`, naming every variable without a value with what it is for.
    """
    open_ = [name for name, variable in declared.items() if variable.default is None and name not in given]
    if open_:
        said = "; ".join(
            f"the variable {name!r} has no value: {declared[name].description}" for name in open_
        )
        raise NotFilled(f"{said}; give it with {' '.join(f'--var {name}=VALUE' for name in open_)}")
    values = dict(given)
    for name, variable in declared.items():
        if name not in values and variable.default is not None:
            filled = fill(variable.default, values, f"variables.{name}.default", lambda missing: "")
            values[name] = str(filled)
    return values


def fill(value: JsonValue, values: Mapping[str, str], where: str, hint: Callable[[str], str]) -> JsonValue:
    """`value` with `${name}` replaced in all its texts; `$${` stands for `${`; inserted values are not expanded.

    Raises `NotFilled`; `where` is the path of `value`, `hint` makes the advice for a variable without a value.
    """

    def replace(found: re.Match[str]) -> str:
        if found[0] == "$${":
            return "${"
        if not found[1]:
            raise NotFilled(
                f"{where}: '${{' begins a variable such as ${{name}}; '$${{' stands for the characters"
            )
        if found[1] not in values:
            raise NotFilled(f"{where}: the variable {found[1]!r} has no value{hint(found[1])}")
        return values[found[1]]

    if isinstance(value, str):
        return _VARIABLE.sub(replace, value)
    if isinstance(value, list):
        return [fill(item, values, f"{where}.{index}", hint) for index, item in enumerate(value)]
    if isinstance(value, dict):
        return {key: fill(item, values, f"{where}.{key}", hint) for key, item in value.items()}
    return value


def names_in(value: JsonValue) -> set[str]:
    """The names of the variables in `value`."""
    if isinstance(value, str):
        return {found[1] for found in _VARIABLE.finditer(value) if found[1]}
    parts = value if isinstance(value, list) else value.values() if isinstance(value, dict) else ()
    return {name for part in parts for name in names_in(part)}


@dataclass(frozen=True)
class Outline:
    """Outline of a mission file before its variables have values; `planner` is None if it names none."""

    description: str
    planner: str | None
    variables: Mapping[str, Variable]
    has_plan: bool = False
    root: str | None = None


def outline_mission(text: str, *, source: str) -> Outline:
    """The outline of the mission file `text`. Raises like `parse_mission`, which alone reads all of it."""
    stated = read_stated(text, source)
    known = keys_at(mission_file(), ())
    if unknown := [key for key in stated if key not in known]:
        _refuse(f"{source}: {unknown[0]}: is not a known key; {nearest(unknown[0], known)}")
    planner = stated.get("planner")
    named = planner.get("type", "") if isinstance(planner, dict) else planner
    told = stated.get("description") or stated.get("goal") or ""
    return Outline(
        str(told),
        None if named is None else str(named),
        _declared(stated, source),
        stated.get("plan") is not None,
        root if isinstance(root := stated.get("root"), str) else None,
    )


def parse_mission(
    text: str,
    *,
    source: str,
    variables: Mapping[str, str] = {},
    settings: Sequence[str] = (),
    read_file: Callable[[str], str] | None = None,
) -> MissionSpec:
    """The mission that `text` (YAML or JSON) states; `source` names it in errors.

    `${name}` in a string is replaced from `variables` and the defaults that the file declares, `$${` stands for `${`;
    then `settings` replace values (`limits.max_jobs=200`). `read_file` reads a file that the mission names, such as the
    schema of its result; it raises `NotFilled` if there is none. Raises `LcpError` (`INVALID_MISSION`, or
    `INVALID_ARGUMENT` for one of `variables` that the mission does not have) with source, key, expectation and fact.
    """
    stated = read_stated(text, source)
    declared = _declared(stated, source)
    stated.pop("variables", None)
    known = [*declared, *names_in(stated)]

    def hint(name: str) -> str:
        return f"; give it with --var {name}=VALUE"

    if strange := [name for name in variables if name not in known]:
        message = f"{source}: --var {strange[0]}: no variable is named so; {nearest(strange[0], known)}"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, message)
    try:
        values = with_defaults(declared, variables)
        replaced = {key: fill(item, values, key, hint) for key, item in stated.items()}
    except NotFilled as refused:
        _refuse(f"{source}: {refused}")
    return build_mission(replaced, source=source, settings=settings, read_file=read_file)


def read_stated(text: str, source: str) -> dict[str, JsonValue]:
    """The mapping that a file states (JSON or YAML). Raises `INVALID_MISSION`."""
    from lcp_engine.core.mission.yaml import NotReadable, read_document  # yaml is slow

    try:
        value = read_document(text)
    except NotReadable as refused:
        _refuse(f"{source}: {refused}", {} if refused.line is None else {"line": refused.line})
    if value is None:
        _refuse(f"{source}: a mapping with a goal and a planner is expected; there is nothing in it")
    if not isinstance(value, dict):
        _refuse(f"{source}: a mapping with a goal and a planner is expected, not {fact(value)}")
    _check_grants(value, source)
    return value if "steps" not in value else _mission_of_plan(value, source)


def _mission_of_plan(stated: dict[str, JsonValue], source: str) -> dict[str, JsonValue]:
    """The mission file of an ExecutionPlan that stands alone; its texts are taken as they are."""
    of_mission = {*keys_at(mission_file(), ()), "input"} - {*keys_at(mission_file(), ("plan",))}
    if others := [key for key in stated if key in of_mission]:
        what = "request" if "input" in others else "mission"
        way = (
            "leave out input or steps"
            if what == "request"
            else "state them in the mission as plan: {steps: …}"
        )
        _refuse(f"{source}: {others[0]}: is a key of a {what}, and steps of a plan that stands alone; {way}")
    name = stated.get("id")
    return {
        "name": name if isinstance(name, str) else "plan",
        "goal": "Carry out the plan.",
        "plan": without_variables(stated),
    }


def without_variables(value: JsonValue) -> JsonValue:
    """`value` with `$${` for each `${`, so that a mission file reads no variables in its texts (pure)."""
    if isinstance(value, str):
        return value.replace("${", "$${")
    if isinstance(value, list):
        return [without_variables(item) for item in value]
    return {key: without_variables(item) for key, item in value.items()} if isinstance(value, dict) else value


GRANTED: Mapping[str, str] = {
    "allow_admin": "is granted by who launches the mission, not by its author; leave it out, and launch with "
    "--allow-admin (in Python: allow_admin=True)",
    "background": "is what a request states; leave it out, and launch the request",
}
"""Keys of a stored mission that who launches it sets, and no file."""


def _check_grants(stated: Mapping[str, JsonValue], source: str) -> None:
    for key in GRANTED:
        if key in stated:
            _refuse(f"{source}: {key}: {GRANTED[key]}")


def _declared(stated: Mapping[str, JsonValue], source: str) -> dict[str, Variable]:
    try:
        return VARIABLES.validate_python(stated.get("variables") or {})
    except ValidationError as refused:
        refuse_all(faults_of(refused, Variable, "variables"), source)


def build_mission(
    value: Mapping[str, JsonValue],
    *,
    source: str,
    settings: Sequence[str] = (),
    read_file: Callable[[str], str] | None = None,
) -> MissionSpec:
    """Like `parse_mission`, from a value that is read already; it has no variables."""
    stated = dict(value)
    for setting in settings:
        _apply(stated, setting)
    _check_grants(stated, source)
    _read_schema(stated, source, read_file)
    try:
        return mission_model().model_validate(stated)
    except ValidationError as refused:
        refuse_all(faults_of(refused, mission_file()), source)


def _read_schema(stated: dict[str, JsonValue], source: str, read_file: Callable[[str], str] | None) -> None:
    """Put the schema of the result in the place of the name of its file: whoever reads the spec needs no file."""
    from lcp_engine.core.mission.yaml import NotReadable, read_document

    result = stated.get("result")
    if not isinstance(result, dict) or not isinstance(name := result.get("schema"), str):
        return
    where = f"{source}: result.schema"
    if read_file is None:
        _refuse(
            f"{where}: should be the schema itself; {fact(name)} names a file, which only a mission file can do"
        )
    try:
        schema = read_document(read_file(name))
    except (NotFilled, NotReadable) as refused:
        _refuse(f"{where}: {fact(name)}: {refused}")
    if not isinstance(schema, dict):
        _refuse(f"{where}: {fact(name)}: should hold a JSON Schema, an object, not {fact(schema)}")
    stated["result"] = {**result, "schema": schema}


def with_limits(old: Limits, changed: Mapping[str, JsonValue]) -> Limits:
    """`old` with other values for some limits. Raises `INVALID_MISSION` in the words of `parse_mission`."""
    try:
        return Limits.model_validate({**old.model_dump(), **changed})
    except ValidationError as refused:
        refuse_all(faults_of(refused, Limits, "limits"))


def _apply(stated: dict[str, JsonValue], setting: str) -> None:
    from lcp_engine.core.mission.yaml import NotReadable, read_document, read_scalar

    key, equals, text = setting.partition("=")
    *parents, last = key.strip().split(".")
    if not equals or not all((*parents, last)) or len(parents) > 20:
        _refuse(f"--set: key=value is expected, not {fact(setting)}")
    try:
        flow = text.lstrip().startswith(("[", "{", '"', "'"))
        value = read_document(text) if flow else read_scalar(text.strip())
    except NotReadable as refused:
        _refuse(f"--set {key}: {refused}")
    place: JsonValue = stated
    for parent in parents:
        place = (
            place.setdefault(parent, {})
            if isinstance(place, dict)
            else _item(place, parent, key)[int(parent)]
        )
    if isinstance(place, dict):
        place[last] = value
    else:
        _item(place, last, key)[int(last)] = value


def _item(place: JsonValue, index: str, key: str) -> list[JsonValue]:
    if not isinstance(place, list):
        _refuse(f"--set {key}: {index!r} needs a mapping or a list around it, not {fact(place)}")
    if not (index.isascii() and index.isdigit() and int(index) < len(place)):
        _refuse(f"--set {key}: {index!r} should be an index of a list of {len(place)}")
    return place


_FORMS: Mapping[str, str] = {
    "id": "req- and a UUID in lower case",
    "session_id": "sess- and a UUID in lower case",
}


def faults_of(refused: ValidationError, model: type[BaseModel], *above: str) -> list[Fault]:
    """Every fault once: unknown keys first, since a misspelt key is why another one is missing."""
    errors = sorted(refused.errors(include_url=False), key=is_missing)
    return list({fault.line: fault for fault in (_fault(error, model, above) for error in errors)}.values())


def _fault(error: ErrorDetails, model: type[BaseModel], above: Sequence[str]) -> Fault:
    path = (*above, *error["loc"])
    said = explain(error, model)
    if is_missing(error) and (near := _near_miss(error, keys_at(model, error["loc"][:-1]))) is not None:
        meant, path = path[-1], (*path[:-1], near)
        said = f"is not a known key; did you mean {meant!r}?"
    elif error["type"] == "string_pattern_mismatch" and (form := _form(path)) is not None:
        said = f"should be {form}, not {fact(error['input'])}"
    where = dotted(path)
    return Fault(f"{where}: {said}" if where else said, path)


def _form(path: Sequence[str | int]) -> str | None:
    """Words for a text that has to match a pattern."""
    if path[0] not in _PLANS:
        return _FORMS.get(str(path[-1]))
    example = "step-001 or build" if "steps" in path else "main"
    return f"a name that begins with a letter and has letters, digits, _ and -, such as {example}"


def dotted(parts: Sequence[str | int]) -> str:
    """A place in a mission as errors name it: `limits.max_turns`, `plan.steps[0].tool`."""
    if not parts or parts[0] not in _PLANS:
        return ".".join(map(str, parts))
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts).removeprefix(".")


_PLANS = ("plan", "fallback_plans")
"""Keys whose places are said as the program that made the plan would write them."""


def _near_miss(missing: ErrorDetails, known: Sequence[str]) -> str | None:
    """The unknown key that is meant for the one that is missing."""
    stated = missing["input"] if isinstance(missing["input"], dict) else {}
    unknown = [key for key in stated if isinstance(key, str) and key not in known]
    return next((key for key in unknown if nearest_name(key, known) == missing["loc"][-1]), None)


def refuse_all(faults: Sequence[Fault], source: str = "") -> NoReturn:
    """Refuse with the first faults in the message, and all in the details."""
    said = "; ".join(fault.line for fault in faults[:3])
    _refuse(f"{source}: {said}" if source else said, details_of(faults))


def _refuse(message: str, details: Mapping[str, Json] = {}) -> NoReturn:
    line = "".join(char if char.isprintable() else " " for char in message)
    raise LcpError(ErrorCode.INVALID_MISSION, line, details)
