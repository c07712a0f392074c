"""Tables of docs/benchmarks.md about the writers; see bench.tables."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

Figures = Sequence[dict[str, Any]]


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(str(cell) for cell in line)} |" for line in lines)


def counted(found: dict[str, int]) -> str:
    """Return counts by their names, in a line."""
    return ", ".join(f"{name} {count}" for name, count in found.items())


def hook_rates(figures: Figures) -> str:
    head = (
        "format",
        "Spark's Parquet sink, rows/s",
        "data source, rows/s",
        "ratio",
        "each round",
        "ForeachBatch, rows/s",
        "ratio",
        "each round",
    )
    rows = [
        (
            each["format"],
            f"{each['spark_rows_per_s']:,}",
            f"{each['source_rows_per_s']:,}",
            each["source_ratio"],
            " ".join(str(ratio) for ratio in each["source_ratios"]),
            f"{each['foreach_rows_per_s']:,}",
            each["foreach_ratio"],
            " ".join(str(ratio) for ratio in each["foreach_ratios"]),
        )
        for each in figures
    ]
    return table(head, rows)


def hook_batches(figures: Figures) -> str:
    head = (
        "tasks",
        "coordinator",
        "streamWriter, twice",
        "commit",
        "each task",
        "for a batch",
        "in round trips",
        "duration of a batch, and of the plain sink",
    )
    rows = [
        (
            each["tasks"],
            {"ours": "at work", "frozen": "frozen"}[sink],
            f"{each[f'{sink}_streamWriter_ms']:g} ms",
            f"{each[f'{sink}_commit_ms']:g} ms",
            f"{each[f'{sink}_task_ms']:g} ms",
            f"{each[f'{sink}_batch_ms']:g} ms",
            each[f"{sink}_round_trips"],
            f"{each[f'{sink}_duration_ms']:g}, {each['plain_duration_ms']:g} ms",
        )
        for each in figures
        for sink in ("ours", "frozen")
    ]
    trips = ", ".join(f"{each['round_trip_ms']:g}" for each in figures)
    told = f"{figures[0]['rounds']} rounds. Round trips, by number of tasks: {trips} ms."
    return f"{table(head, rows)}\n\n{told}"


def python_writers(figures: Figures) -> str:
    head = (
        "format",
        "way",
        "appends",
        "seconds",
        "failed commits",
        "commits",
        "publications",
        "kills",
        "rows missing, doubled",
    )
    rows = []
    for each in figures:
        own = each["way"] == "ours"
        failed = 0 if own else counted({k: v for k, v in each["errors"].items() if k != "appends"}) or 0
        rows.append(
            (
                each["format"],
                each["way"],
                f"{each['appends']:,} of {each['offered']:,}",
                each["seconds"],
                failed,
                each["commits"] if own else each["appends"],
                f"{each['publications']}, {each['ratio']} for each commit" if own else "",
                each["kills"] if own else "none",
                f"{each['missing']}, {each['doubled']}" if own else "",
            )
        )
    return table(head, rows)


def uploads(figures: Figures) -> str:
    head = ("series", "batches", "median", "longest", "ratio of medians", "rows")
    rows = [
        (
            each["series"],
            each["batches"],
            f"{each['median_s']:g} s",
            f"{each['longest_s']:g} s",
            each.get("ratio", ""),
            each["rows"],
        )
        for each in figures
    ]
    return table(head, rows)


def ways_in(figures: Figures) -> str:
    (found,) = figures
    rows = [
        ("way, format", f"{found['way']}, {found['format']}"),
        ("faults", f"{found['faults']}: {counted(found['by_kind'])}"),
        ("rows missing, doubled", f"{found['missing']}, {found['doubled']}"),
    ]
    return table(("figure", "value"), rows)


WRITER_TABLES: Final[dict[str, Callable[[Figures], str]]] = {
    "hook_rates": hook_rates,
    "hook_batches": hook_batches,
    "python_writers": python_writers,
    "uploads": uploads,
}
"""By the name of the result."""
