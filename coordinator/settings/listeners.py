"""Settings of listeners: common keys, and the keys of the type, which the type's own model checks."""

import hashlib
import json
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import Field, SerializeAsAny, ValidationError, model_validator

from sluicegate.coordinator.settings.sources import Section, Text
from sluicegate.listeners.port import ListenerRefused, Options
from sluicegate.listeners.registry import listener_type

COMMON: Final = ("type", "start", "skip_through", "revision")


class ListenerSettings(Section):
    """One listener of a stream. The keys beside these belong to its type."""

    type: Text
    """Name of the type of listeners, such as `webhook`."""
    start: Literal["new", "earliest"] = "new"
    """First outcome of a listener without a record: the next one, or the first that the topic has."""
    skip_through: Annotated[int, Field(ge=0)] = 0
    """Newest decision whose actions are skipped: the way on after a loss, or past an outcome."""
    revision: Annotated[int, Field(ge=0)] = 0
    """Raise it to let a listener try again that has stopped, if nothing else changes."""
    options: SerializeAsAny[Options]
    """Keys of the type."""

    @model_validator(mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        if not isinstance(value, Mapping) or not isinstance(value.get("type"), str):
            return value
        if isinstance(value.get("options"), Options):
            return value
        own = {key: each for key, each in value.items() if key not in COMMON}
        try:
            model = listener_type(value["type"]).options
            options = model.model_validate(own)
        except ListenerRefused as error:
            raise ValueError(str(error)) from None
        except ValidationError as error:
            raise ValueError(_explained(error, model)) from None
        return {**{key: value[key] for key in COMMON if key in value}, "options": options}

    @property
    def fingerprint(self) -> str:
        """Return a digest of the settings without secrets; with another one, a stopped listener tries."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def _explained(error: ValidationError, model: type[Options]) -> str:
    """Format the problems of a type's keys. Values are never shown."""
    lines = []
    for each in error.errors(include_url=False, include_input=False, include_context=False):
        key, kind = ".".join(str(part) for part in each["loc"]), each["type"]
        if kind == "missing":
            lines.append(f"`{key}` is required")
        elif kind == "extra_forbidden":
            known = ", ".join((*COMMON, *model.model_fields))
            lines.append(f"unknown key `{key}`; known here: {known}")
        else:
            lines.append(f"`{key}`: {each['msg'].removeprefix('Value error, ')}")
    return "; ".join(lines)
