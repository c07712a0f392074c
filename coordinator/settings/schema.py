"""JSON Schema of the settings file, for editors: `sluicegate init --schema` prints it.

It finds unknown keys and wrong types while they are typed. The models check more, such as keys that exclude
each other. No key is required here, because each can come from the environment.
"""

from importlib.metadata import entry_points
from typing import Any, Final

from sluicegate.coordinator.settings.model import COMMON, Settings
from sluicegate.events.schemas import DIALECT, DocumentedSchema, as_json
from sluicegate.listeners.port import GROUP, ListenerRefused, Options, listener_type

NAME: Final = "settings.schema.json"
"""Name of its file on the site."""
_LISTENER: Final = "ListenerSettings"


def render() -> str:
    """Return the text of the schema, with the keys of all listeners that are installed here."""
    made = Settings.model_json_schema(schema_generator=DocumentedSchema)
    definitions = made["$defs"]
    listener, _ = definitions[_LISTENER], definitions.pop(Options.__name__)
    common = {key: listener["properties"][key] for key in COMMON}
    cases = []
    for name, model in _installed().items():
        own = model.model_json_schema(schema_generator=DocumentedSchema)
        definitions |= own.pop("$defs", {})
        definitions[name] = own | {"properties": common | own.get("properties", {})}
        cases.append({"if": {"properties": {"type": {"const": name}}}, "then": {"$ref": f"#/$defs/{name}"}})
    # A type that is not installed here may be so where the coordinator runs.
    definitions[_LISTENER] = listener | {
        "properties": common,
        "additionalProperties": True,
        "allOf": cases,
    }
    return as_json({"$schema": DIALECT, **_of_file(made), "title": "Settings of Sluicegate"})


def _installed() -> dict[str, type[Options]]:
    """Return the keys of the installed types of listeners, by the names of the types."""
    found = {}
    for name in sorted(each.name for each in entry_points(group=GROUP)):
        try:
            found[name] = listener_type(name).options
        except ListenerRefused:
            continue
    return found


def _of_file(part: Any) -> Any:
    """Return a part of the schema as a file has it: TOML has no null, and the environment other keys."""
    if isinstance(part, list):
        return [_of_file(each) for each in part]
    if not isinstance(part, dict):
        return part
    found = {
        key: {name: _of_file(each) for name, each in value.items()}
        if key in ("properties", "$defs")
        else _of_file(value)
        for key, value in part.items()
        if key not in ("required", "ge") and not (key == "default" and isinstance(value, dict | None))
    }
    kinds = [each for each in found.get("anyOf", ()) if each != {"type": "null"}]
    if len(kinds) == 1:
        del found["anyOf"]
        return {**kinds[0], **found}
    return found | ({"anyOf": kinds} if kinds else {})
