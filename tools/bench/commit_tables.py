"""Tables of docs/benchmarks.md about commits and ingestion; see tools.bench.tables."""

from typing import Final

from tools.bench.cells import Figures, Tables, middle_and_worst, table


def _pair(found: dict[str, float]) -> str:
    return f"{found['median']:.3g} / {found['p99']:.3g}"


def latency(figures: Figures) -> str:
    (found,) = figures
    names = {
        "sealing event to snapshot, ours": "append_to_visible_ms",
        "of it, append to decision": "append_to_decision_ms",
        "of it, decision to snapshot": "decision_to_visible_ms",
        "bare pypaimon commit, call to snapshot": "bare_call_to_visible_ms",
        "ours above bare": "above_bare_ms",
    }
    rows = [(name, found[key]["p50"], found[key]["p99"]) for name, key in names.items()]
    said = f"{found['checkpoints']} checkpoints, {found['commits']} commits."
    return f"{table(('duration, ms', 'p50', 'p99'), rows)}\n\n{said}"


def ingest(figures: Figures) -> str:
    head = (
        "files in each event",
        "bytes of its body",
        "raw, events/s",
        "ours, events/s",
        "ratio",
        "each round",
    )
    rows = [
        (
            each["files_per_event"],
            f"{each['body_bytes']:,}",
            f"{each['raw_per_s']:,}",
            f"{each['ours_per_s']:,}",
            each["ratio"],
            " ".join(str(ratio) for ratio in each["ratios"]),
        )
        for each in figures
    ]
    same = " and ".join(str(each["ratio_same_collector"]) for each in figures)
    return (
        f"{table(head, rows)}\n\nWith the same garbage collector settings on both sides the ratio is {same}."
    )


def cadence(figures: Figures) -> str:
    head = ("interval", "checkpoints", "commits", "shortest gap", "median", "longest", "rows")
    rows = [
        (
            f"{each['interval_s']} s" if each["interval_s"] else "none",
            each["checkpoints"],
            each["commits"],
            *(f"{each['gap_s'][name]} s" for name in ("min", "p50", "max")),
            f"{each['rows']:,}, each once",
        )
        for each in figures
    ]
    return table(head, rows)


def paimon_commit(figures: Figures) -> str:
    head = (
        "table's age, commits",
        "files",
        "samples",
        "pypaimon",
        "our check",
        "our publication",
        "pypaimon to publication",
        "pypaimon to check and publication",
        "read the events once",
    )
    rows = [
        (
            each["age"],
            f"{each['files']:,}",
            each["samples"],
            _pair(each["pypaimon"]),
            _pair(each["check"]),
            _pair(each["publication"]),
            each["ratio_publication"],
            each["ratio_both"],
            f"{each['bodies']['median']:.3g}",
        )
        for each in figures
    ]
    return table(head, rows)


def visible(figures: Figures) -> str:
    head = (
        "format",
        "files",
        "rounds",
        "ours",
        "of it, check",
        "question",
        "publication",
        "Java library",
        "ours to the library's, median",
    )
    rows = [
        (
            each["format"],
            f"{each['files']:,}",
            each["rounds"],
            middle_and_worst(each["ours_ms"]),
            *(f"{each[f'{name}_ms']:.3g}" for name in ("check", "ask", "publish")),
            middle_and_worst(each["jvm_ms"]),
            each["ratio"],
        )
        for each in figures
        if "ratio" in each
    ]
    aged_head = ("format", "commits", "side", "first tenth", "last tenth", "last to first")
    aged_rows = [
        (
            each["format"],
            f"{each['aged']:,}",
            name,
            *(each[f"{side}_{figure}"] for figure in ("first_ms", "last_ms", "growth")),
        )
        for each in figures
        if "aged" in each
        for side, name in (("ours", "ours"), ("jvm", "Java library"))
    ]
    return f"{table(head, rows)}\n\n{table(aged_head, aged_rows)}"


def last_event(figures: Figures) -> str:
    head = (
        "format",
        "files",
        "events",
        "rounds",
        "last event to the commit, p50",
        "p99",
        "completion to the commit, p50",
    )
    rows = [
        (
            each["format"],
            f"{each['files']:,}",
            each["events"],
            each["rounds"],
            *(f"{each['last_event_to_visible_ms'][name]:.3g} ms" for name in ("p50", "p99")),
            f"{each['completion_to_visible_ms']['p50']:.3g} ms",
        )
        for each in figures
    ]
    return table(head, rows)


def last_event_hdfs(figures: Figures) -> str:
    head = ("format", "files", "rounds", "last event to the commit", "of it, from the completion")
    rows = [
        (
            each["format"],
            each["files"],
            each["rounds"],
            f"{middle_and_worst(each['last_event_to_visible_ms'])} ms",
            f"{each['completion_to_visible_ms']['p50']:.3g} ms",
            f"{middle_and_worst(each['library_ms'])} ms",
            each["ratio"],
        )
        for each in figures
    ]
    return table((*head, "the library's commit", "ratio of p50"), rows)


def kafka_connect(figures: Figures) -> str:
    head = (
        "files",
        "events, tasks",
        "ours, p50",
        "p99",
        "of it, from the completion, p50",
        "Iceberg Kafka Connect, p50",
        "p99",
        "ratio of p50",
        "commits, ours and of the sink",
    )
    rows = [
        (
            f"{each['files']:,}",
            each["events"],
            *(f"{each['ours_ms'][name]:.3g} ms" for name in ("p50", "p99")),
            f"{each['ours_from_completion_ms']['p50']:.3g} ms",
            *(f"{each['sink_ms'][name]:.3g} ms" for name in ("p50", "p99")),
            each["ratio"],
            f"{each['rounds']}, {each['rounds_of_sink']}",
        )
        for each in figures
    ]
    return table(head, rows)


def merging(figures: Figures) -> str:
    head = (
        "format",
        "commits",
        "most manifests",
        "merges",
        "publication without a merge",
        "with a merge",
        "merges of 100",
        "with a merge of 100",
    )
    rows = [
        (
            each["format"],
            f"{each['commits']:,}",
            each["manifests_max"],
            f"{each['merges']}, of {each['merged_median']:g} manifests",
            middle_and_worst(each["publish_ms"]),
            middle_and_worst(each["merging_ms"]) if each["merging_ms"] else "",
            each["merges_of_100"],
            middle_and_worst(each["merging_100_ms"]) if each["merging_100_ms"] else "",
        )
        for each in figures
    ]
    return table(head, rows)


def ageing(figures: Figures) -> str:
    (found,) = figures
    head = ("catalog", "commits", "time", "first tenth", "last tenth", "last to first")
    rows = [
        (
            found["catalog"],
            f"{found['commits']:,}",
            name,
            *(found[f"{side}_{figure}"] for figure in ("first_ms", "last_ms", "growth")),
        )
        for side, name in (("commit", "whole commit"), ("client", "processor time of the client"))
    ]
    return table(head, rows)


def absence(figures: Figures) -> str:
    (found,) = figures
    rows = [
        (
            case,
            middle_and_worst(found[case]),
            middle_and_worst(found.get(f"{case}, ratio", {"p50": 1, "p99": 1})),
        )
        for case in ("all at work", "declined", "dead", "hung")
    ]
    head = ("the third region", "delay of a commit, p50 / p99, ms", "ratio to all at work, p50 / p99")
    return f"{table(head, rows)}\n\n{found['checkpoints']} commits in each row."


COMMIT_TABLES: Final[Tables] = {
    "absence": absence,
    "latency": latency,
    "ingest": ingest,
    "cadence": cadence,
    "paimon_commit": paimon_commit,
    "visible": visible,
    "last_event": last_event,
    "last_event_hdfs": last_event_hdfs,
    "kafka_connect": kafka_connect,
    "merging": merging,
    "ageing": ageing,
}
