"""Tables of docs/benchmarks.md about the writers; see tools.bench.tables."""

from typing import Final

from tools.bench.cells import Figures, Tables, counted, middle_and_worst, table


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


def slow_nodes(figures: Figures) -> str:
    head = (
        "series",
        "batches",
        "p50",
        "p99",
        "longest",
        "p99 to healthy, async",
        "p99 to healthy, sync",
        "longest between two batches",
        "all rows there after",
        "failures of the query",
        "rows",
    )
    rows = [
        (
            each["series"],
            each["batches"],
            *(f"{each['batch_ms'][share]:,.0f} ms" for share in ("p50", "p99", "max")),
            each.get("p99_to_async", ""),
            each.get("p99_to_sync", ""),
            f"{each['longest_wait_s']:g} s",
            f"{each['arrival_s']:g} s",
            each["failures"],
            each["rows"],
        )
        for each in figures
    ]
    first = figures[0]
    said = f"{first['copies']} copies of each block on {first['data_nodes']} data nodes, "
    said += f"{first['rounds']} rounds."
    return f"{table(head, rows)}\n\n{said}"


def file_sizes(figures: Figures) -> str:
    head = ("format", "layout", "files", "bytes", "Spark, bytes", "ratio", "rows/s", "pyarrow alone, rows/s")
    rows = [
        (
            each["format"],
            each["layout"],
            each["files"],
            f"{each['bytes']:,}",
            f"{each['spark_bytes']:,}",
            each["ratio"],
            f"{each['rows_per_s']:,}",
            f"{each['pyarrow_rows_per_s']:,}",
        )
        for each in figures
    ]
    said = f"{figures[0]['rows']:,} rows; rates are medians of {figures[0]['rounds']} rounds."
    return f"{table(head, rows)}\n\n{said}"


def doubling(figures: Figures) -> str:
    rows = [(each["sink"], each["rows"], each["rows"] - each["distinct"], each["spark"]) for each in figures]
    return table(("sink", "rows; 30 are right", "doubled rows", "Spark"), rows)


def begin(figures: Figures) -> str:
    (found,) = figures
    rows = [
        (
            region,
            middle_and_worst(found[f"{region} ms"]),
            found["round trips of a begin"][region],
            found["events of a begin"][region],
        )
        for region in ("idle", "busy")
    ]
    head = ("region", "`begin`, p50 / p99, ms", "in round trips", "events")
    trip = middle_and_worst(found["round trip ms"])
    return f"{table(head, rows)}\n\nA round trip of a plain producer took {trip} ms."


def carried(figures: Figures) -> str:
    _, log, driver = figures
    head = (
        "the completion",
        "events for a checkpoint",
        "checkpoints/s from the log",
        "`begin` to `complete`, ms",
    )
    rows = [
        (
            said,
            driver[f"{way}_events_per_checkpoint"],
            f"{log[f'{way}_per_s']:,}",
            middle_and_worst(driver[f"{way}_ms"]),
        )
        for way, said in {"former": "names a `files.written`", "carried": "carries the files"}.items()
    ]
    each = " ".join(str(ratio) for ratio in log["ratios"])
    return (
        f"{table(head, rows)}\n\nCheckpoints read in a second: {log['ratio']} times as many by the clock "
        f"(each round {each}), {log['cpu_ratio']} times by the time of the processor."
    )


WRITER_TABLES: Final[Tables] = {
    "begin": begin,
    "carried": carried,
    "hook_rates": hook_rates,
    "hook_batches": hook_batches,
    "python_writers": python_writers,
    "uploads": uploads,
    "slow_nodes": slow_nodes,
    "file_sizes": file_sizes,
    "doubling": doubling,
}
