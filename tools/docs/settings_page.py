"""The reference page of the settings, from their models."""

import inspect
import json
import re
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from sluicegate.coordinator.settings import model as units
from sluicegate.coordinator.settings.model import Settings, words_of_bytes
from sluicegate.coordinator.settings.sources import PREFIX, SEPARATOR, model_of
from sluicegate.events.schemas import docstrings
from sluicegate.listeners.port import Options, listener_type
from tools.docs.markdown import cell

HEADING: Final = """\
# Settings, all keys

[The service](../service.md) explains how settings are used;
[examples/sluicegate.toml](../../examples/sluicegate.toml) is a file with every key.

The settings come from a TOML file and from the environment, which wins. A variable is `SLUICEGATE_` and the
path of the key in capitals, with two underscores between the parts. The name of a stream or of an option
stands in the variable with an underscore for each punctuation. Empty variables count as not set. Unknown
keys are errors.

A *duration* is a number of seconds, or text such as `500ms`, `30s`, `15m`, `2h`, `7d`. A *size* is a number
of bytes, or text such as `64KiB`, `256MiB`, `2GiB`. A *name* begins with a letter, a digit or `_`, and has
at most 200 of these characters, `.` and `-`. A list in a variable has commas between its parts.
"""
_DURATIONS: Final = {units.parse_seconds: "duration above 0", units.parse_seconds_or_zero: "duration"}
_LISTENERS: Final = ("mark-done", "openlineage", "tags", "webhook")
"""Types of listeners of this product."""
_LENGTHS: Final = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))
_TYPES: Final[Mapping[Any, str]] = {
    str: "text",
    int: "number",
    float: "number",
    bool: "`true` or `false`",
    SecretStr: "secret text",
    Path: "path",
}
_NAMED: Final = {"path": "path", "datetime": "time with its zone"}
"""By a part of the name of a type, its words."""


def render() -> str:
    """Return the page."""
    return HEADING + "".join(_section(Settings, ()))


def _section(model: type[BaseModel], path: tuple[str, ...]) -> Iterator[str]:
    """Yield the table of a section, and those of the sections in it."""
    documented, inner = docstrings(model), []
    title = f"`[{'.'.join(path)}]`" if path else "The top level"
    title += f" of the type `{kind}`" if (kind := _kind_of(model)) else ""
    about = (inspect.getdoc(model) or "") if path else ""
    rows = []
    for name, field in model.model_fields.items():
        nested = model_of(field.annotation) or _model_of_values(field.annotation)
        if nested is Options:
            inner += [(listener_type(kind).options, path) for kind in _LISTENERS]
            continue
        if nested is not None:
            place = (*path, name, "NAME") if model_of(field.annotation) is None else (*path, name)
            inner.append((nested, place))
            continue
        variable = f"{PREFIX}{SEPARATOR.join((*path, name)).upper()}"
        meaning = cell(documented.get(name, ""))
        rows.append(f"| `{name}`<br>`{variable}` | {_type(field)} | {_default(field)} | {meaning} |\n")
    yield f"\n## {title}\n"
    yield f"\n{about}\n" if about else ""
    yield "\n| key, variable | type | default | meaning |\n|---|---|---|---|\n" + "".join(rows)
    for nested, place in inner:
        yield from _section(nested, place)


def _kind_of(model: type[BaseModel]) -> str:
    """Return the type of listeners whose own settings a model has; empty if it is no such model."""
    return next((kind for kind in _LISTENERS if listener_type(kind).options is model), "")


def _model_of_values(annotation: Any) -> type[BaseModel] | None:
    """Return the model of the values of a mapping, None if they have none."""
    return model_of(get_args(annotation)[1]) if get_origin(annotation) is dict else None


def _type(field: FieldInfo) -> str:
    """Return the type of a key in words, with its limits."""
    words = _words(field.annotation, field.metadata)
    if words.startswith("size"):
        return words
    limits = [*field.metadata, *_inner(field.annotation)]
    low, above, high = (_limit(limits, name) for name in ("ge", "gt", "le"))
    begin = f"{low:.10g}" if low is not None else f"above {above:.10g}" if above is not None else ""
    if high is not None:
        return f"{words}, {begin} to {high:.10g}" if begin else f"{words}, at most {high:.10g}"
    return f"{words}, {begin}{' or more' if low is not None else ''}" if begin else words


def _limit(limits: list[Any], name: str) -> float | None:
    return next((getattr(each, name) for each in limits if getattr(each, name, None) is not None), None)


def _words(annotation: Any, metadata: list[Any]) -> str:
    for each in metadata:
        function = getattr(each, "func", None)
        if function in _DURATIONS:
            return _DURATIONS[function]
        if function is units.parse_bytes:
            return "size"
        if "A-Za-z0-9" in str(getattr(each, "pattern", None) or ""):
            return "name"
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _words(arguments[0], [part for each in arguments[1:] for part in _parts(each)])
    if origin is Literal:
        return " or ".join(f"`{json.dumps(each)}`" for each in arguments)
    if origin in (Union, types.UnionType):
        return next(_words(each, metadata) for each in arguments if each is not type(None))
    if origin is tuple:
        return f"list of {_words(arguments[0], [])}s"
    if origin is dict:
        return f"table, each {_words(arguments[1], [])}"
    name = str(annotation).lower()
    named = next((words for part, words in _NAMED.items() if part in name), "text")
    return _TYPES.get(annotation, named)


def _inner(annotation: Any) -> list[Any]:
    """Return the limits of a value that may be left out."""
    if get_origin(annotation) not in (Union, types.UnionType):
        return []
    given = [part for each in get_args(annotation) for part in get_args(each)[1:]]
    return [part for each in given for part in _parts(each)]


def _parts(metadata: Any) -> list[Any]:
    """Return the parts of a pydantic field in an annotation."""
    return list(metadata.metadata) if isinstance(metadata, FieldInfo) else [metadata]


def _default(field: FieldInfo) -> str:
    """Return the default of a key as in a file."""
    if field.is_required():
        return "required"
    value, words = field.get_default(call_default_factory=True), _type(field)
    if value in (None, "", (), {}):
        return "none"
    if words.startswith("duration"):
        return f'`"{_duration(value)}"`' if value else "`0`"
    if words.startswith("size"):
        text = words_of_bytes(value).replace(" ", "")
        exact = units.parse_bytes(text) == value
        return f'`"{text}"`' if exact else f"`{value}`"
    return f"`{json.dumps(value)}`"


def _duration(seconds: float) -> str:
    size, unit = next((size, unit) for size, unit in _LENGTHS if seconds % size == 0 and seconds >= size)
    return re.sub(r"\.0$", "", str(seconds / size)) + unit
