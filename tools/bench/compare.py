"""Two commits in turn: each benchmark in this checkout and in another commit, several times, and their ratio.

    python -m tools.bench compare REV [--only NAMES] [--rounds 3]

The other commit is checked out below .bench-results, with an environment of its own that `make sync` makes
once. Every second round begins with the other commit, so that a machine that slows down favours neither. A
ratio above 1 is worse than the other commit; it is of medians over the rounds. All of it takes about
an hour."""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from tools.bench.catalogue import RESULTS

ROOT: Final = Path(__file__).parents[2]
Figures = Sequence[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of a benchmark's output."""

    name: str
    """With its unit."""
    read: Callable[[Figures], float]
    more_is_better: bool = False


def _slow(found: Figures) -> float:
    runs = {each["run"]: each for each in found}
    return float(runs["slow"]["healthy_p50_while_slow_ms"] / runs["calm"]["healthy_p50_ms"])


def _last_event(found: Figures, lake: str) -> float:
    (row,) = (each for each in found if each["format"] == lake)
    return float(row["last_event_to_visible_ms"]["p50"])


COMPARED: Final[dict[str, tuple[tuple[str, ...], tuple[Figure, ...]]]] = {
    "latency": (
        ("--checkpoints", "200"),
        (
            Figure(
                "sealing event to snapshot, p50, ms", lambda found: found[0]["append_to_visible_ms"]["p50"]
            ),
            Figure(
                "sealing event to snapshot, p99, ms", lambda found: found[0]["append_to_visible_ms"]["p99"]
            ),
        ),
    ),
    "ingest": (
        ("--pairs", "3"),
        (
            Figure("10 files in each event, share of raw", lambda found: found[0]["ratio"], True),
            Figure("1 file in each event, share of raw", lambda found: found[1]["ratio"], True),
            Figure("10 files in each event, events/s", lambda found: found[0]["ours_per_s"], True),
            Figure("1 file in each event, events/s", lambda found: found[1]["ours_per_s"], True),
        ),
    ),
    "last_event": (
        ("--formats", "paimon,iceberg,delta", "--files", "10", "--rounds", "40", "--warm-up", "300"),
        (
            Figure("last event to visible, Paimon, p50, ms", lambda found: _last_event(found, "paimon")),
            Figure("last event to visible, Iceberg, p50, ms", lambda found: _last_event(found, "iceberg")),
            Figure("last event to visible, Delta, p50, ms", lambda found: _last_event(found, "delta")),
        ),
    ),
    "hook_rates": (
        ("--formats", "paimon", "--rounds", "2"),
        (
            Figure(
                "data source, rows to those of Spark's sink", lambda found: found[0]["source_ratio"], True
            ),
            Figure(
                "ForeachBatch, rows to those of Spark's sink", lambda found: found[0]["foreach_ratio"], True
            ),
        ),
    ),
    "freeze": (
        ("--rounds", "1"),
        (
            Figure("batch while frozen to batch before", lambda found: found[0]["ratio"]),
            Figure("batch before, ms", lambda found: found[0]["rounds"][0]["batch_ms_live"]),
        ),
    ),
    "slow_region": (
        ("--runs", "1", "--rows", "150000"),
        (
            Figure("healthy regions, slow to calm", _slow),
            Figure("calm run, s", lambda found: found[0]["seconds"]),
        ),
    ),
    "scale": (
        ("--files", "100000"),
        (
            Figure("processor time per file, µs", lambda found: found[0]["cpu_us_per_file"]),
            Figure("memory above idle, MiB", lambda found: found[0]["above_idle_peak_mib"]),
        ),
    ),
    "streams": (
        ("--rounds", "1"),
        (
            Figure("p50 alone, ms", lambda found: found[0]["p50_alone_ms"]),
            Figure("p99 alone, ms", lambda found: found[0]["p99_alone_ms"]),
            Figure("p99 beside a stuck stream, ms", lambda found: found[0]["p99_beside_stuck_ms"]),
        ),
    ),
    "restart": (
        ("--rounds", "2"),
        (
            Figure("start to the decision, s", lambda found: found[-1]["decides_s"]),
            Figure("processor time, s", lambda found: found[-1]["cpu_s"]),
        ),
    ),
}
"""By benchmark, its arguments and the figures that are compared."""


def measure(root: Path, name: str) -> Figures:
    """Run one benchmark in a checkout; return the objects that it prints."""
    # Commits before the move to tools/ have the folder at the root.
    package = "tools.bench" if (root / "tools/bench").exists() else "bench"
    command = [str(root / ".venv/bin/python"), "-m", f"{package}.{name}", *COMPARED[name][0], "--json"]
    done = subprocess.run(command, cwd=root, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} in {root} ended with status {done.returncode}\n{done.stdout[-2000:]}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def commit(root: Path) -> str:
    command = ["git", "rev-parse", "--short=10", "HEAD"]
    return subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout.strip()


def compare(other: Path, name: str, rounds: int) -> list[dict[str, Any]]:
    """Run a benchmark in both checkouts; return a line for each of its figures."""
    found: dict[Path, list[Figures]] = {ROOT: [], other: []}
    for number in range(rounds):
        for root in (ROOT, other) if number % 2 == 0 else (other, ROOT):
            found[root].append(measure(root, name))
    lines = []
    for figure in COMPARED[name][1]:
        now, before = ([figure.read(each) for each in found[root]] for root in (ROOT, other))
        ratio = median(before) / median(now) if figure.more_is_better else median(now) / median(before)
        lines.append(
            {
                "benchmark": name,
                "figure": figure.name,
                "other_commit": commit(other),
                "other": before,
                "this": now,
                "ratio": round(ratio, 2),
                "load": os.getloadavg()[0],
            }
        )
    return lines


def check_out(revision: str) -> Path:
    """Check a commit out beside this one, with its environment; return the folder."""
    name = _git("rev-parse", "--short=10", f"{revision}^{{commit}}")
    folder = RESULTS / "commits" / name
    if not folder.exists():
        _git("worktree", "prune")
        _git("worktree", "add", "--detach", str(folder), name)
    subprocess.run(["make", "--no-print-directory", "sync"], cwd=folder, check=True, stdout=sys.stderr)
    return folder


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout.strip()


def main(arguments: Sequence[str] | None = None) -> None:
    """Compare this checkout with another commit."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.bench compare",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("revision", help="the other commit, such as HEAD~20 or a tag")
    parser.add_argument("--only", default=",".join(COMPARED), help="separated by commas")
    parser.add_argument("--rounds", type=int, default=3)
    wanted = parser.parse_args(arguments)
    names = [name for name in wanted.only.split(",") if name]
    if unknown := set(names) - set(COMPARED):
        parser.error(f"nothing is compared of {', '.join(sorted(unknown))}; there are {', '.join(COMPARED)}")
    other = check_out(wanted.revision)
    for name in names:
        for line in compare(other, name, wanted.rounds):
            print(json.dumps(line, ensure_ascii=False), flush=True)


if __name__ == "__main__":
    main()
