"""Tables of docs/benchmarks.md about faults, slow parts and recovery; see tools.bench.tables."""

from collections import Counter
from statistics import median
from typing import Final

from tools.bench.cells import Figures, Tables, counted, exact, table


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
            exact(each),
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
    said += f"cell. Median ratio of p99: {found['p99_median_ratio']:.3g}."
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
            exact(each),
        )
        for each in figures
    ]
    return table(head, rows)


def kills(figures: Figures) -> str:
    steps = Counter[str]()
    for each in figures:
        steps.update(each["kill_phases"])
    seconds = [each["seconds"] for each in figures]
    right = sum(exact(each) == "exact" for each in figures)
    said = f"{right} of {len(figures)} tables exact, {steps.total()} kills, {min(seconds):g} to "
    said += f"{max(seconds):g} seconds for each run (median {median(seconds):g})."
    return f"{table(('step under way', 'kills'), steps.most_common())}\n\n{said}"


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


def ways_in(figures: Figures) -> str:
    (found,) = figures
    rows = [
        ("way, format", f"{found['way']}, {found['format']}"),
        ("faults", f"{found['faults']}: {counted(found['by_kind'])}"),
        ("rows missing, doubled", f"{found['missing']}, {found['doubled']}"),
    ]
    return table(("figure", "value"), rows)


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


def live_page(figures: Figures) -> str:
    (found,) = figures
    rows = [
        ("first matrix", f"{found['first_ms']} ms"),
        ("update, p50", f"{found['p50_ms']} ms"),
        ("update, p95", f"{found['p95_ms']} ms"),
        ("update, p95 of the slowest run", f"{found['p95_highest_ms']} ms"),
    ]
    said = f"{found['regions']} regions, {found['cuts']} cuts, {found['updates']} updates in each of "
    return f"{table(('figure', 'value'), rows)}\n\n{said}{found['runs']} runs. Medians of the runs."


def takeover(figures: Figures) -> str:
    (found,) = figures
    rows = [
        ("kills of coordinators", found["kills"]),
        ("commits", f"{found['commits']:,}"),
        ("from the completion to the notification, p50", f"{found['delay_p50_ms']:g} ms"),
        ("the same, p99", f"{found['delay_p99_ms']:g} ms"),
        ("the same, longest", f"{found['delay_max_ms']:g} ms"),
        ("commits that took more than 5 s", found["over_limit"]),
        ("tables that are not exact", len(found["inexact_tables"])),
    ]
    said = f"{found['members']} coordinators, {found['streams']} streams."
    return f"{table(('figure', 'value'), rows)}\n\n{said}"


def many_streams(figures: Figures) -> str:
    (found,) = figures
    both = [found["few"], found["many"]]
    head = ("round", *(f"{share}, {each['streams']:,} streams" for share in ("p50", "p99") for each in both))
    cells = [[[cell[share] for cell in each["rounds"]] for each in both] for share in ("p50", "p99")]
    rows = [
        (number, *row, ratio)
        for number, (*row, ratio) in enumerate(zip(*cells[0], *cells[1], found["p99_ratios"], strict=True), 1)
    ]
    costs = [
        (
            f"{each['streams']:,}",
            f"{each['rss_mib']} MiB",
            each["idle_cores"],
            *(f"{took['p50']:.3g} / {took['max']:.3g} ms" for took in each["answers_ms"].values()),
        )
        for each in both
    ]
    names = ("streams", "memory", "cores while idle", "page", "API, all streams", "metrics")
    said = f"{found['rate']:g} commits a second. Median ratio of p99: {found['p99_median_ratio']:.3g}.\n\n"
    said += f"{table(names, costs)}\n\nAnswers: median and longest of 30."
    return f"{table((*head, 'ratio of p99'), rows)}\n\n{said}"


_FLOODS: Final = {
    "events": "valid events",
    "limited": "the same, with `max_events_per_second`",
    "files": "lists of 1,000 files that no completion names",
    "garbage": "no events",
}


def flood(figures: Figures) -> str:
    (found,) = figures
    keys = ("none_ms", "flood_ms", "flood_max_ms", "ratio")
    rows = [
        (_FLOODS[each["kind"]], f"{each['messages_a_second']:,}", *(each[key] for key in keys))
        for each in found["phases"]
    ]
    head = ("flood of", "messages a second", "alone, p50", "beside, p50", "beside, longest", "ratio of p50")
    said = f"{found['commits']} commits each. Limit: {found['limit']} events a second."
    return f"{table(head, rows)}\n\n{said}"


def metrics_page(figures: Figures) -> str:
    (found,) = figures
    rows = [
        ("answer, p50", f"{found['answer_p50_ms']} ms"),
        ("answer, longest", f"{found['answer_longest_ms']} ms"),
        ("processor time, each series changed", f"{found['processor_ms']} ms"),
        ("processor time, nothing changed", f"{found['processor_unchanged_ms']} ms"),
        ("a step of a commit, p99, without scrapes", f"{found['step_p99_ms']} ms"),
        ("the same, with a scrape each second", f"{found['step_p99_scraped_ms']} ms"),
        ("longest wait of the event loop", f"{found['loop_longest_ms']} ms"),
    ]
    said = f"{found['streams']:,} streams, {found['bytes']:,.0f} bytes. Medians of {found['runs']} runs."
    return f"{table(('figure', 'value'), rows)}\n\n{said}"


def mark_done(figures: Figures) -> str:
    rows = [
        (each["format"], each["kills"], each["commits"], each["partial"], f"{each['marks']}, each in time")
        for each in figures
    ]
    return table(("format", "kills", "commits", "of these partial", "months marked"), rows)


def soak(figures: Figures) -> str:
    (found,) = figures
    faults = table(("fault", "times"), list(found["faults"].items()))
    measured = [
        (
            name,
            *(found[f"{key}_{when}"] for when in ("second_quarter", "last_quarter", "most")),
            ", ".join(f"{part:g}" for part in found[f"{key}_parts"]),
        )
        for key, name in (("rss_mib", "memory, MiB"), ("files", "open files"), ("threads", "threads"))
    ]
    head = ("median of", "second quarter", "last quarter", "most", "twelfths of the time")
    exact = "each row once" if found["exact"] else "NOT EXACT"
    said = f"{found['minutes']:g} minutes, {found['format']}: {found['commits']:,} commits, "
    return f"{faults}\n\n{said}{found['rows']:,} rows, {exact}.\n\n{table(head, measured)}"


FAULT_TABLES: Final[Tables] = {
    "freeze": freeze,
    "slow_region": slow_region,
    "replay": replay,
    "scale": scale,
    "streams": streams,
    "streams_stuck": streams,
    "restart": restart,
    "demo": demo,
    "kills": kills,
    "flood": flood,
    "races": races,
    "simulator": simulator,
    "live_page": live_page,
    "many_streams": many_streams,
    "metrics_page": metrics_page,
    "soak": soak,
    "takeover": takeover,
    "mark_done": mark_done,
}
