"""Rewrite the tables of docs/benchmarks.md from the results of `python -m bench.all`.

    python -m bench.tables

A table stands between two markers, `<!-- table NAME -->` and `<!-- end -->`. Nothing between them is written
by hand: tests compare them with the results, and the results with the code that measures.
"""

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, Final

from bench.catalogue import BENCHMARKS, RESULTS, Benchmark
from bench.writer_tables import WRITER_TABLES, Figures, counted, table, ways_in

DOCS: Final = Path(__file__).parents[1] / "docs" / "benchmarks.md"
_TABLE: Final = re.compile(r"<!-- table (\w+) -->\n.*?<!-- end -->", re.DOTALL)


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
            _middle_and_worst(each["ours_ms"]),
            *(f"{each[f'{name}_ms']:.3g}" for name in ("check", "ask", "publish")),
            _middle_and_worst(each["jvm_ms"]),
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
            _middle_and_worst(each["publish_ms"]),
            _middle_and_worst(each["merging_ms"]) if each["merging_ms"] else "",
            each["merges_of_100"],
            _middle_and_worst(each["merging_100_ms"]) if each["merging_100_ms"] else "",
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


def races(figures: Figures) -> str:
    counted = ("commits", "lost, doubled", "publications", "of another process", "conflicts")
    rows = []
    for each in figures:
        made, conflicts = each["outcomes"]["Published"], each["outcomes"].get("Conflict", 0)
        lost = f"{each['lost']}, {each['doubled']}"
        counts = (f"{each['commits']:,}", lost, f"{made + conflicts:,}", f"{made - each['commits']:,}")
        rows.append(
            (each["format"], each["store"], each["processes"], each["rounds"], *counts, f"{conflicts:,}")
        )
    return table(("format", "store", "processes", "rounds", *counted), rows)


def faults(figures: Figures) -> str:
    (found,) = figures
    rows = [
        ("format, store", f"{found['format']}, {found['store']}"),
        ("SIGKILLs", f"{found['kills']}: {counted(found['by_process'])}"),
        ("of these at failpoints", found["at_failpoints"]),
        ("tables", found["tables"]),
        ("rows missing, doubled", f"{found['missing']}, {found['doubled']}"),
        ("also", counted(found["others"])),
    ]
    return table(("figure", "value"), rows)


def _middle_and_worst(found: dict[str, float]) -> str:
    return f"{found['p50']:.3g} / {found['p99']:.3g}"


def freeze(figures: Figures) -> str:
    (found,) = figures
    head = (
        "round",
        "before, ms",
        "frozen, ms",
        "ratio",
        "commits after SIGCONT",
        "seconds until all is visible",
    )
    rows = [
        (
            number,
            each["batch_ms_live"],
            each["batch_ms_frozen"],
            each["ratio"],
            each["commits_after"],
            each["recovery_s"],
        )
        for number, each in enumerate(found["rounds"], 1)
    ]
    return table(head, rows)


def slow_region(figures: Figures) -> str:
    head = ("run", "table", "healthy regions, p50 ms", "partial of all commits", "forced cuts given up")
    rows = [
        (
            each["run"],
            _exact(each),
            each["healthy_p50_while_slow_ms" if each["run"].startswith("slow") else "healthy_p50_ms"],
            f"{each['partial_cuts']} of {each['commits']}",
            each["abandoned"],
        )
        for each in figures
    ]
    calm = [each["healthy_p50_ms"] for each in figures if each["run"] == "calm"]
    slow = [each["healthy_p50_while_slow_ms"] for each in figures if each["run"] == "slow"]
    ratios = ", ".join(f"{one / other:.2f}" for one, other in zip(slow, calm, strict=True))
    said = f"Median against median: {median(slow):g} against {median(calm):g} ms, "
    said += f"a ratio of {median(slow) / median(calm):.2f}; pair by pair {ratios}."
    return f"{table(head, rows)}\n\n{said}"


def _exact(found: dict[str, Any]) -> str:
    whole = found["rows"] == found["expected"] and not found["missing"] and not found["duplicated"]
    return "exact" if whole else "NOT EXACT"


def replay(figures: Figures) -> str:
    (found,) = figures
    alone, beside = found["loop_late_alone_ms"], found["loop_late_beside_sweep_ms"]
    rows = [
        ("`sluicegate replay --verify`", f"{found['verify_s']} s, {found['records_per_s']:,} records/s"),
        ("`sluicegate orphans`", f"{found['orphans_s']} s"),
        ("event loop late, alone", f"p99 {alone[0]} ms, worst {alone[1]} ms"),
        ("event loop late, beside a sweep", f"p99 {beside[0]} ms, worst {beside[1]} ms"),
    ]
    said = f"{found['records']:,} records, {found['losers']:,} files of losers, {found['commits']} commits, "
    said += (
        f"{found['there']} found in the table. The start of the command, {found['start_s']} s, is left out."
    )
    return f"{table(('work', 'time'), rows)}\n\n{said}"


def scale(figures: Figures) -> str:
    runs = [each for each in figures if "files" in each]
    smallest = {each.get("format"): each["cpu_us_per_file"] for each in reversed(runs)}
    head = (
        "format",
        "files",
        "memory above idle, peak",
        "processor time",
        "per file",
        "per file, to the smallest",
        "seconds",
    )
    rows = [
        (
            each.get("format", "paimon"),
            f"{each['files']:,}",
            f"{each['above_idle_peak_mib']} MiB",
            f"{each['cpu_s']} s",
            f"{each['cpu_us_per_file']} µs",
            round(each["cpu_us_per_file"] / smallest[each.get("format")], 2),
            each["seconds"],
        )
        for each in runs
    ]
    return f"{table(head, rows)}\n\nAn idle process has {runs[0]['idle_mib']} MiB."


def streams(figures: Figures) -> str:
    (found,) = figures
    head = ("round", "p50 alone", "p50 beside", "p99 alone", "p99 beside", "ratio of p99")
    rows = [
        (number, alone["p50"], beside["p50"], alone["p99"], beside["p99"], ratio)
        for number, (alone, beside, ratio) in enumerate(
            zip(found["alone"], found["beside_stuck"], found["p99_ratios"], strict=True), 1
        )
    ]
    said = f"{found['streams']} streams, {found['stuck']} stuck, {found['commits_a_round']} commits in each "
    said += f"cell. Median ratio of p99: {found['p99_median_ratio']}."
    return f"{table(head, rows)}\n\n{said}"


def restart(figures: Figures) -> str:
    rounds, middle = figures[:-1], figures[-1]
    head = ("from the process's start", "coordinator", "raw", "ratio, rounds", "ratio, median")

    def span(key: str) -> str:
        values = [each[key] for each in rounds]
        return f"{min(values)} to {max(values)}"

    rows = [
        ("to the decision", f"{span('decides_s')} s", f"{span('raw_s')} s", span("ratio"), middle["ratio"]),
        (
            "without the time before reading",
            f"{span('from_assignment_s')} s",
            f"{span('reading_s')} s",
            span("reading_ratio"),
            middle["reading_ratio"],
        ),
        (
            "processor time",
            f"{span('cpu_s')} s",
            f"{span('raw_cpu_s')} s",
            span("cpu_ratio"),
            middle["cpu_ratio"],
        ),
    ]
    return f"{table(head, rows)}\n\n{len(rounds)} rounds, {rounds[-1]['records']:,} records."


def demo(figures: Figures) -> str:
    head = ("rows", "missing", "doubled", "commits", "seconds", "table")
    rows = [
        (
            f"{each['rows']:,}",
            each["missing"],
            each["duplicated"],
            each["commits"],
            each["seconds"],
            _exact(each),
        )
        for each in figures
    ]
    return table(head, rows)


def kills(figures: Figures) -> str:
    steps = Counter[str]()
    for each in figures:
        steps.update(each["kill_phases"])
    seconds = [each["seconds"] for each in figures]
    exact = sum(_exact(each) == "exact" for each in figures)
    said = f"{exact} of {len(figures)} tables exact, {steps.total()} kills, {min(seconds):g} to "
    said += f"{max(seconds):g} seconds for each run (median {median(seconds):g})."
    return f"{table(('step under way', 'kills'), steps.most_common())}\n\n{said}"


def simulator(figures: Figures) -> str:
    (found,) = figures
    rows = [
        ("schedules", f"{found['schedules']:,}, from seed {found['first_seed']}"),
        ("violations", found["violations"]),
        ("steps", f"{found['steps']:,}, median {found['median_steps']:g} a schedule"),
        ("steps a second", f"{found['steps_per_second']:,}; {found['cpu_steps_per_s']:,} of processor time"),
        ("rows of the coverage table", found["rows"]),
        *((f"hit least: {name}", times) for name, times in found["rarest"].items()),
    ]
    return table(("figure", "value"), rows)


def doubling(figures: Figures) -> str:
    rows = [(each["sink"], each["rows"], each["rows"] - each["distinct"], each["spark"]) for each in figures]
    return table(("sink", "rows; 30 are right", "doubled rows", "Spark"), rows)


MAKERS: Final[dict[str, Callable[[Figures], str]]] = {
    "latency": latency,
    "ingest": ingest,
    "cadence": cadence,
    "paimon_commit": paimon_commit,
    "visible": visible,
    "last_event": last_event,
    "merging": merging,
    "ageing": ageing,
    "file_sizes": file_sizes,
    "freeze": freeze,
    "slow_region": slow_region,
    "replay": replay,
    "scale": scale,
    "streams": streams,
    "streams_stuck": streams,
    "restart": restart,
    "doubling": doubling,
    "demo": demo,
    "kills": kills,
    "races": races,
    **{each.name: faults for each in BENCHMARKS if each.module == "faults"},
    **{each.name: ways_in for each in BENCHMARKS if each.module == "ways_in"},
    **{each.name: WRITER_TABLES[each.name] for each in BENCHMARKS if each.name in WRITER_TABLES},
    "simulator": simulator,
}


def load(name: str) -> dict[str, Any] | None:
    """Read a result, None if there is none."""
    path = RESULTS / f"{name}.json"
    found: dict[str, Any] | None = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
    return found


def _origin(benchmark: Benchmark, result: dict[str, Any]) -> str:
    """Format where a table comes from: command, commit and load."""
    said = f"`{result['command']}`, commit `{result['commit']}`, {result['date']}, {result['seconds']} s. "
    said += f"Of {result['cores']} cores, other processes used {result['others_before']} before and "
    said += f"{result['others_during']} during the run; load {result['load_before']} before, "
    said += f"{result['load_after']} after."
    if not result["quiet"]:
        said += " **The machine was busy.**"
    if result["command"] != f"python {' '.join(benchmark.command())}":
        said += f" **A trial, not the full run (`python {' '.join(benchmark.command())}`).**"
    return said


def render(benchmark: Benchmark) -> str:
    """Format a benchmark's table with its origin."""
    result = load(benchmark.name)
    if result is None:
        return f"Not measured yet: `python {' '.join(benchmark.command())}`."
    return f"{_origin(benchmark, result)}\n\n{MAKERS[benchmark.name](result['figures'])}"


def filled(text: str) -> str:
    """Return the page with every table rewritten."""
    known = {each.name: each for each in BENCHMARKS}
    return _TABLE.sub(
        lambda found: f"<!-- table {found[1]} -->\n{render(known[found[1]])}\n<!-- end -->", text
    )


def rewrite() -> None:
    """Rewrite the page."""
    DOCS.write_text(filled(DOCS.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    rewrite()
