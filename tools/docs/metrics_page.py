"""The reference page of the metrics, from their registry."""

from typing import Final

from sluicegate.coordinator.observe.metrics import Metrics

HEADING: Final = """\
# Metrics

Served at `/metrics` in Prometheus' text format. [Operations](../operations.md#alerts) has the alerts.

A member of the group shows the streams and partitions that it owns. Beside these there are the usual
`process_*` metrics (memory, CPU, open files).

| metric | type | unit | labels | meaning |
|---|---|---|---|---|
"""


def render() -> str:
    """Return the page."""
    rows = []
    for each in sorted(Metrics().definitions, key=lambda definition: definition.name):
        labels = ", ".join(f"`{label}`" for label in each.labels) or "-"
        rows.append(f"| `{each.name}` | {each.kind} | {each.unit} | {labels} | {each.help} |\n")
    return HEADING + "".join(rows)
