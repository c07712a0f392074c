"""The reference page of the HTTP interface, from its OpenAPI document."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from sluicegate.coordinator.web.model import document
from tools.docs.markdown import cell, format_fields

HEADING: Final = """\
# HTTP interface, all fields

The source is the [OpenAPI document](../schemas/http/openapi.json), which a coordinator serves at
`/api/v1/openapi.json`. [The live page](../page.md#the-http-interface) explains the use.

All paths are read with GET. Fields may be added; none is removed in version 1. Times are milliseconds since
the Unix epoch, sizes are bytes. Readers ignore fields that they do not know.

## For machines that watch the process

| path | answer |
|---|---|
| `/livez` | 200, or 503 if the process should be restarted |
| `/readyz` | 200, or 503 with the reasons as text, while the coordinator cannot serve its streams |
| `/metrics` | [metrics](metrics.md) as Prometheus reads them |
| `/status` | the streams of this coordinator, as `sluicegate status --json` has them |

[Operations](../operations.md#status) has the faults that each of them shows.
"""


def render() -> str:
    """Return the page."""
    return HEADING + "".join(_parts(document()))


def _parts(api: Mapping[str, Any]) -> Iterator[str]:
    yield "\n## Paths\n"
    for path, methods in api["paths"].items():
        for method, operation in methods.items():
            yield f"\n### {method.upper()} {path}\n\n{operation['summary']}\n"
            yield from _parameters(operation["parameters"])
            yield "\n| status | answer |\n|---|---|\n"
            for status, answer in operation["responses"].items():
                yield f"| {status} | {cell(answer['description'])}{_link(answer)} |\n"
    yield "\n## Parts of answers\n"
    for name, schema in sorted(api["components"]["schemas"].items()):
        about = cell(schema.get("description", ""))
        yield f"\n### {name}\n\n" + (f"{about}\n\n" if about else "") + format_fields(schema)


def _parameters(parameters: list[Mapping[str, Any]]) -> Iterator[str]:
    if parameters:
        yield "\n| parameter | in | value |\n|---|---|---|\n"
    for each in parameters:
        schema = each["schema"]
        limits = f" from {schema['minimum']} to {schema['maximum']}" if "minimum" in schema else ""
        default = f"; default {schema['default']}" if "default" in schema else ""
        about = f"; {cell(each['description'])}" if "description" in each else ""
        yield f"| `{each['name']}` | {each['in']} | {schema['type']}{limits}{default}{about} |\n"


def _link(answer: Mapping[str, Any]) -> str:
    """Return the link to the schema of an answer, if it has one."""
    for content in answer.get("content", {}).values():
        name = content["schema"].get("$ref", "").rpartition("/")[2]
        if name:
            return f" [{name}](#{name.lower()})"
    return ""
