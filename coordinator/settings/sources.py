"""Sources of settings: the environment as a layer over the file, with readable problems.

pydantic-settings merges the layers and validates them. Its own source of the environment is not used. It
ignores an unknown variable, and does not name the variable of a wrong value. It knows no names of streams
from the file, which may have letters that a variable cannot have. It takes lists as JSON only.
"""

import difflib
import json
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from sluicegate.kafka.settings import plain

PREFIX: Final = "SLUICEGATE_"
SEPARATOR: Final = "__"
_OTHERS: Final = (
    "SLUICEGATE_BY",
    "SLUICEGATE_CONFIG",
    "SLUICEGATE_TEST_",
    "SLUICEGATE_DEMO_",
    "SLUICEGATE_CACHE",
    "SLUICEGATE_MAVEN",
    "SLUICEGATE_WAREHOUSE",
)
"""Prefixes of sluicegate variables that are no settings."""

_NAME_RULE: Final = "a name has letters, digits, `_`, `.` and `-`, starts with none of the last two"

Path = tuple[str, ...]

Text = Annotated[str, Field(min_length=1)]


class SettingsError(Exception):
    """The settings cannot be used; the text has a line for each problem, with its key and the remedy."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)

    @property
    def listed(self) -> str:
        """Return the problems for the end of a sentence, each in a line of its own."""
        return "".join(f"\n  {problem}" for problem in self.problems)


class Section(BaseModel):
    """Base of every section: immutable, and without unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class EnvironmentSource(PydanticBaseSettingsSource):
    """Reads `SLUICEGATE_SECTION__KEY`; empty variables count as not set.

    Keys of settings are matched without case. The name of a stream or option matches the name in the file
    that differs only in case and punctuation. A name that is not in the file becomes lower case.
    """

    def __init__(
        self, settings_cls: type[BaseSettings], env: Mapping[str, str], file: Mapping[str, Any]
    ) -> None:
        super().__init__(settings_cls)
        self.origins: dict[Path, str] = {}
        """Variable that set each key."""
        self.problems: list[str] = []
        self._values: dict[str, Any] = {}
        for name in sorted(env):
            if name.startswith(PREFIX) and not name.startswith(_OTHERS) and env[name]:
                self._take(name, env[name], file)

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        """Return the value of one top-level key."""
        return self._values.get(field_name), field_name, False

    def __call__(self) -> dict[str, Any]:
        """Return all values from the environment, nested."""
        return self._values

    def origin(self, path: Path) -> str | None:
        """Return the variable that set this key, or a table around it; None if none did."""
        return next(
            (self.origins[p] for n in range(len(path), 0, -1) if (p := path[:n]) in self.origins), None
        )

    def _take(self, name: str, text: str, file: Mapping[str, Any]) -> None:
        annotation: Any = self.settings_cls
        known: object = file
        path: list[str] = []
        for part in name.removeprefix(PREFIX).split(SEPARATOR):
            key = _resolve(part, annotation, known)
            path.append(key)
            annotation = child(annotation, key)
            known = known.get(key) if isinstance(known, Mapping) else None
        table = self._values
        for key in path[:-1]:
            table = table.setdefault(key, {})
            if not isinstance(table, dict):
                self.problems.append(f"{'.'.join(path)}: {name} contradicts the variable of {key}")
                return
        try:
            table[path[-1]] = _decode(text, annotation)
        except ValueError:
            self.problems.append(f"{'.'.join(path)}: {name} is not valid JSON")
            return
        self.origins[tuple(path)] = name


def _resolve(part: str, annotation: Any, known: object) -> str:
    if model_of(annotation) is None and isinstance(known, Mapping) and part not in known:
        alike = [key for key in known if _fold(key) == _fold(part)]
        return alike[0] if len(alike) == 1 else part.lower()
    return part if isinstance(known, Mapping) and part in known else part.lower()


def _fold(name: str) -> str:
    return "".join(letter if letter.isalnum() else "_" for letter in name.casefold())


def _decode(text: str, annotation: Any) -> Any:
    if text.lstrip().startswith("{") and (model_of(annotation) or _origin(annotation) is dict):
        return json.loads(text)
    if _origin(annotation) is not tuple:
        return text
    return json.loads(text) if text.lstrip().startswith("[") else [part.strip() for part in text.split(",")]


def _alternatives(annotation: Any) -> Iterator[Any]:
    if get_origin(annotation) is Annotated:
        yield from _alternatives(get_args(annotation)[0])
    elif get_origin(annotation) in (Union, types.UnionType):
        for choice in get_args(annotation):
            yield from _alternatives(choice)
    else:
        yield annotation


def _origin(annotation: Any) -> Any:
    return next((get_origin(choice) for choice in _alternatives(annotation) if get_origin(choice)), None)


def model_of(annotation: Any) -> type[BaseModel] | None:
    """Return the model of an annotation, optional or not; None if it is no model."""
    for choice in _alternatives(annotation):
        if isinstance(choice, type) and issubclass(choice, BaseModel):
            return choice
    return None


def child(annotation: Any, key: str) -> Any:
    """Return the annotation of a key in a model or mapping; None if it is unknown."""
    model = model_of(annotation)
    if model is not None:
        field = model.model_fields.get(key)
        return field.annotation if field is not None else None
    for choice in _alternatives(annotation):
        if get_origin(choice) is dict:
            return get_args(choice)[1]
    return None


def explain(error: ValidationError, root: type[BaseModel], source: EnvironmentSource) -> list[str]:
    """Format every problem as one line: the key, the problem, the remedy. Values are never shown."""
    lines = []
    for detail in error.errors(include_url=False, include_input=False, include_context=False):
        path = tuple(str(part) for part in detail["loc"] if part != "[key]")
        where = source.origin(path)
        text = f"{'.'.join(path) or 'the settings'}: {_problem(detail['type'], detail['msg'], path, root)}"
        if "[key]" in detail["loc"]:
            text = f"{'.'.join(path)}: {_NAME_RULE}, and at most 200 characters"
        lines.append(f"{text} (set by {where})" if where else text)
    return lines


def _problem(kind: str, message: str, path: Path, root: type[BaseModel]) -> str:
    if kind == "missing":
        return f"is required; set it in the file or as {PREFIX}{SEPARATOR.join(path).upper()}"
    if kind == "extra_forbidden":
        return _unknown(path, root)
    if kind in ("model_type", "model_attributes_type", "dict_type"):
        return "must be a table with keys of its own"
    return plain(message)


def _unknown(path: Path, root: type[BaseModel]) -> str:
    annotation: Any = root
    for key in path[:-1]:
        annotation = child(annotation, key)
    model = model_of(annotation)
    known: Sequence[str] = list(model.model_fields) if model is not None else []
    section = next((name for name in known if path[-1].startswith(f"{name}_")), None)
    close = difflib.get_close_matches(path[-1], known, n=1)
    hint = f"did you mean `{close[0]}`?" if close else f"known here: {', '.join(known)}"
    if section is not None and len(path) == 1:
        hint = f"in a variable two underscores follow the section: {PREFIX}{section.upper()}{SEPARATOR}..."
    return f"unknown key; {hint}"
