"""The JSON Schemas of all messages, from the models of their bodies."""

import ast
import inspect
import json
import textwrap
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, models_json_schema
from pydantic_core.core_schema import ModelSchema

from sluicegate.events.envelope import (
    BODIES,
    CONTENT_TYPE,
    MAX_ID_LENGTH,
    NUMBER_PATTERN,
    PER_CHECKPOINT,
    PER_REGION,
    PER_WRITER,
    SOURCE,
    SOURCE_PATTERN,
    SPEC_VERSION,
    EventType,
    wire_type,
)
from sluicegate.events.examples import EXAMPLES
from sluicegate.events.models import INCARNATION_PATTERN, NAME_PATTERN, Body
from sluicegate.events.notifications import NOTIFICATION_BODIES, NotificationType
from sluicegate.events.orders import ORDER, Order

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
SUFFIX: Final = ".schema.json"


def docstrings(model: type[BaseModel]) -> dict[str, str]:
    """Return the texts below the fields of a model, and of the bases that it has from this product.

    pydantic can do this at the definition of each class, which costs every start of every process 36 ms.
    """
    found: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if not (issubclass(base, BaseModel) and base.__module__.startswith("sluicegate.")):
            continue
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        for field, text in pairwise(tree.body if isinstance(tree, ast.ClassDef) else []):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(text, ast.Expr)
                and isinstance(text.value, ast.Constant)
            ):
                found[field.target.id] = inspect.cleandoc(str(text.value.value))
    return found


class DocumentedSchema(GenerateJsonSchema):
    """Schemas with the texts below the fields, and without titles, which only repeat the fields' names."""

    def field_title_should_be_set(self, schema: object) -> bool:
        return False

    def model_schema(self, schema: ModelSchema) -> dict[str, Any]:
        made = super().model_schema(schema)
        for name, text in docstrings(schema["cls"]).items():
            if (field := made.get("properties", {}).get(name)) is not None:
                field.setdefault("description", text)
        return made


# Generators of code make named types of definitions, and poor ones of unions. So no schema has a union.

OR_NULL: Final = "OrNull"
"""Ending of the name of a model that may be null."""
_OWN_LIMITS: Final = (2**63 - 1, -(2**63))
"""Limits that 64 bits have anyway. Generators read limits as floats, and the upper one becomes too large."""


def named_types(definitions: dict[str, Any], prefix: str) -> dict[str, Any]:
    """Return definitions of pydantic without unions, so that generators of code make named types.

    A plain value that may be null has `null` among its types. For a model, there is a definition of its own,
    such as `PositionOrNull`. Whole numbers have the format `int64`. Of an object with any names, the values
    are `additionalProperties`. `prefix` is that of the references.
    """
    nullable: set[str] = set()
    made = {name: _without_unions(each, prefix, nullable) for name, each in definitions.items()}
    for name in sorted(nullable):
        text = f"{made[name].get('description', name)}\n\nOr null."
        named = {"title": name + OR_NULL, "type": ["object", "null"], "description": text}
        made[name + OR_NULL] = {**made[name], **named}
    return made


def _without_unions(part: Any, prefix: str, nullable: set[str]) -> Any:
    if isinstance(part, list):
        return [_without_unions(each, prefix, nullable) for each in part]
    if not isinstance(part, dict):
        return part
    found = {name: _without_unions(each, prefix, nullable) for name, each in part.items()}
    if "patternProperties" in found:
        ((pattern, value),) = found.pop("patternProperties").items()
        return {**found, "propertyNames": {"pattern": pattern}, "additionalProperties": value}
    if found.get("type") == "integer":
        limits = {each: found.pop(each) for each in ("minimum", "maximum") if each in found}
        kept = {each: limit for each, limit in limits.items() if limit not in _OWN_LIMITS}
        return {**found, "format": "int64", **kept}
    if "anyOf" not in found:
        return found
    (kind,) = (each for each in found.pop("anyOf") if each != {"type": "null"})
    if "$ref" in kind:
        nullable.add(kind["$ref"].removeprefix(prefix))
        return {"$ref": kind["$ref"] + OR_NULL, **found}
    if "const" in kind:
        kind = {**kind, "enum": [kind["const"], None]}
        del kind["const"]
    return {**kind, "type": [kind["type"], "null"], **found}


def attribute_schema() -> dict[str, Any]:
    """Describe the headers, after decoding their values as UTF-8."""
    name = {"type": "string", "pattern": NAME_PATTERN}
    number = {"type": "string", "pattern": NUMBER_PATTERN}
    text = {"type": "string", "minLength": 1, "maxLength": MAX_ID_LENGTH}
    attributes = {
        "ce_id": {**text, "description": "unique for each event; duplicates in the log have the same"},
        "ce_type": {"enum": [wire_type(each).decode() for each in (*EventType, *NotificationType)]},
        "ce_specversion": {"const": SPEC_VERSION.decode()},
        "ce_source": {"type": "string", "pattern": SOURCE_PATTERN, "default": SOURCE.decode()},
        "ce_time": {
            "type": "string",
            "format": "date-time",
            "description": "time of production; for people, nothing is decided by it",
        },
        "content-type": {"const": CONTENT_TYPE.decode()},
        "ce_stream": {**name, "description": "the output of one job into one table"},
        "ce_region": {**name, "description": "a set of writers that makes progress and fails on its own"},
        "ce_incarnation": {
            "type": "string",
            "pattern": INCARNATION_PATTERN,
            "description": "one life of the region's checkpoint numbering",
        },
        "ce_checkpoint": {**number, "description": "the region's own number for a piece of work"},
        "ce_writer": {
            **name,
            "description": "the writer of the files; only a completion that carries files has one",
        },
        "ce_attempt": {**text, "description": "random for each try of the writer; its events have the same"},
        "ce_files": {**number, "description": "number of files in the body; absent: they are counted"},
        "ce_rows": {**number, "description": "number of rows in these files; shown only"},
        "ce_bytes": {**number, "description": "size of these files; counts for `commit_max_bytes`"},
        "ce_table": {**name, "description": "the further table of the files; absent: the anchor"},
        ORDER: _order_schema(),
    }
    return {
        "$schema": DIALECT,
        "title": "Attributes",
        "description": "The headers of every message; no header has two values.",
        "type": "object",
        "properties": attributes,
        "required": ["ce_id", "ce_type", "ce_specversion", "ce_source", "content-type", "ce_stream"],
        "allOf": [
            _needs(PER_REGION, ["ce_region", "ce_incarnation"]),
            _needs(PER_CHECKPOINT, ["ce_checkpoint"]),
            _needs(PER_WRITER, ["ce_writer", "ce_attempt"]),
        ],
    }


def _order_schema() -> dict[str, Any]:
    return {
        "type": "string",
        "contentMediaType": "application/json",
        "contentSchema": Order.model_json_schema(schema_generator=DocumentedSchema),
        "description": "who gave an order, as JSON; a claim of the command, nothing is decided by it",
    }


def _needs(types: frozenset[EventType], attributes: list[str]) -> dict[str, Any]:
    condition = {"ce_type": {"enum": [wire_type(each).decode() for each in EventType if each in types]}}
    return {"if": {"properties": condition}, "then": {"required": attributes}}


def render() -> dict[str, str]:
    """Return the text of every file by its name."""
    return {
        f"attributes{SUFFIX}": as_json(attribute_schema()),
        f"messages{SUFFIX}": as_json(_all_messages()),
        **_bodies(BODIES),
        **_bodies(NOTIFICATION_BODIES),
    }


def _all_messages() -> dict[str, Any]:
    """Return one schema with the models of all bodies, for generators of code: each model is there once."""
    named = {**_by_wire(BODIES), **_by_wire(NOTIFICATION_BODIES)}
    return {
        "$schema": DIALECT,
        "title": "Messages",
        "description": "The bodies of all messages, by `ce_type`.",
        "type": "object",
        "properties": {wire: {"$ref": _DEFS + body.__name__} for wire, body in named.items()},
        "$defs": definitions_of(named.values(), _DEFS),
    }


_Kinds = Mapping[EventType, type[Body]] | Mapping[NotificationType, type[Body]]
_DEFS: Final = "#/$defs/"


def _by_wire(bodies: _Kinds) -> dict[str, type[Body]]:
    return {wire_type(kind).decode(): body for kind, body in bodies.items()}


def _bodies(bodies: _Kinds) -> dict[str, str]:
    return {f"{wire}{SUFFIX}": body_schema(body, wire) for wire, body in _by_wire(bodies).items()}


def definitions_of(models: Iterable[type[BaseModel]], prefix: str) -> dict[str, Any]:
    """Return the definitions of models, and of their parts; references begin with the prefix."""
    _, made = models_json_schema(
        [(model, "validation") for model in dict.fromkeys(models)],
        ref_template=prefix + "{model}",
        schema_generator=DocumentedSchema,
    )
    return named_types(made["$defs"], prefix)


def body_schema(body: type[Body], wire: str) -> str:
    """Return the text of a body's schema, with an example."""
    parts = definitions_of([body], _DEFS)
    own = parts.pop(body.__name__)
    example = json.loads(EXAMPLES[wire].value)
    defs = {"$defs": parts} if parts else {}
    return as_json({"$schema": DIALECT, **defs, **own, "title": wire, "examples": [example]})


def as_json(schema: dict[str, Any]) -> str:
    """Return the text of a schema."""
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
