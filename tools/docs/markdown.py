"""Parts of Markdown that the generated pages share."""

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from sluicegate.events.models import INCARNATION_PATTERN, NAME_PATTERN
from sluicegate.events.schemas import OR_NULL

_SCHEMAS: Final = "#/components/schemas/"
_NAMED: Final = "patternProperties"
_WORDS: Final = {"None": "null", "True": "true", "False": "false"}


def cell(text: str) -> str:
    """Return a text as one line of a table."""
    line = " ".join(text.split()).replace("|", "\\|")
    # In code, a code host shows an entity as it is.
    parts = line.split("`")
    return "`".join(part if n % 2 else part.replace("<", "&lt;") for n, part in enumerate(parts))


def format_fields(schema: Mapping[str, Any]) -> str:
    """Return the fields of a schema as a table of Markdown."""
    if "enum" in schema:
        return "One of " + ", ".join(f"`{value}`" for value in schema["enum"]) + ".\n"
    if not schema.get("properties"):
        return "No fields.\n"
    rows = ["| field | type | default | meaning |\n|---|---|---|---|\n"]
    needed = schema.get("required", ())
    for name, rule in schema["properties"].items():
        default = "" if name in needed else f"`{json.dumps(rule.get('default'))}`"
        rows.append(
            f"| `{name}` | {format_type(rule)} | {default} | {format_text(rule.get('description', ''))} |\n"
        )
    return "".join(rows)


def format_text(description: str) -> str:
    """Return a description as one line of a table."""
    text = " ".join(description.split()).replace("|", "\\|")
    return re.sub(r"\b(None|True|False)\b", lambda word: _WORDS[word[0]], text)


def format_type(rule: Mapping[str, Any]) -> str:
    """Return the type of a field in words."""
    if "$ref" in rule:
        named = str(rule["$ref"]).removeprefix(_SCHEMAS)
        name = named.removesuffix(OR_NULL)
        return f"[{name}](#{name.lower()})" + " or null" * (name != named)
    if "anyOf" in rule:
        return " or ".join(format_type(each) for each in rule["anyOf"])
    if isinstance(rule.get("type"), list):
        (kind,) = (each for each in rule["type"] if each != "null")
        return format_type({**rule, "type": kind}) + " or null" * ("enum" not in rule)
    if rule.get("type") == "array":
        return f"list of {format_type(rule['items'])}"
    if (
        rule.get("type") == "object"
        and isinstance(rule.get("additionalProperties", True), bool)
        and _NAMED not in rule
    ):
        return "object"
    if rule.get("type") == "object":
        (value,) = [rule["additionalProperties"]] if "additionalProperties" in rule else rule[_NAMED].values()
        return f"object: name to {format_type(value)}"
    return format_limits(rule) or "any"


def format_limits(rule: Mapping[str, Any]) -> str:
    """Return a plain type with its limits."""
    if "const" in rule:
        return f"`{rule['const']}`"
    if "enum" in rule:
        return " or ".join("null" if value is None else f"`{value}`" for value in rule["enum"])
    if rule.get("pattern") in (NAME_PATTERN, INCARNATION_PATTERN):
        return "name" if rule["pattern"] == NAME_PATTERN else "name (to 64 characters)"
    limits = []
    if "pattern" in rule:
        limits.append(f"pattern `{rule['pattern']}`".replace("|", "\\|"))
    for key, word in (("minimum", "from"), ("maximum", "to"), ("minLength", "from"), ("maxLength", "to")):
        if key in rule:
            limits.append(f"{word} {rule[key]}" + (" characters" if "Length" in key else ""))
    kind = {"null": "null", "boolean": "true or false"}.get(rule.get("type", ""), rule.get("type", ""))
    if rule.get("format") == "base64url":
        kind = "bytes"
    return f"{kind} ({', '.join(limits)})" if limits else str(kind)
