"""Cells and tables in Markdown, for the tables of docs/benchmarks.md; see tools.bench.tables."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

Figures = Sequence[dict[str, Any]]
"""Output of a benchmark: one object for each line."""
Tables = Mapping[str, Callable[[Figures], str]]
"""Functions that make a table of figures, by the name of the result."""


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(str(cell) for cell in line)} |" for line in lines)


def counted(found: dict[str, int]) -> str:
    """Return counts by their names, in a line."""
    return ", ".join(f"{name} {count}" for name, count in found.items())


def middle_and_worst(found: dict[str, float]) -> str:
    """Return the median and the 99th percentile."""
    return f"{found['p50']:.3g} / {found['p99']:.3g}"


def exact(found: dict[str, Any]) -> str:
    """Say if a table had each row once."""
    whole = found["rows"] == found["expected"] and not found["missing"] and not found["duplicated"]
    return "exact" if whole else "NOT EXACT"
