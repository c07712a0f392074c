"""Run every benchmark, one after the other, and rewrite the tables of docs/benchmarks.md.

    python -m tools.bench all [--only NAMES] [--with NAMES] [--short] [--busy 0.3] [--patience 60]

Before each benchmark it waits until other processes use less than `--busy` cores over five seconds. It waits
`--patience` seconds at most; the result then says that the machine was busy. Each result is a file in
.bench-results: the command, the commit, the load before and after, and the lines that the benchmark printed.
A result without a table on the page is printed.
A full run takes about 45 minutes on two quiet cores. Twenty demos with kills (`--with kills`) take 30 more.
`python -m tools.bench compare REV` compares two commits.
`--short` only shows that every benchmark works, in about 10 minutes; its figures mean little.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from tools.bench import tables
from tools.bench.catalogue import BENCHMARKS, RESULTS, Benchmark

ROOT: Final = Path(__file__).parents[2]
SAMPLE: Final = 5.0
_WRITTEN: Final = (":!docs/benchmarks.md",)
"""The page that this program writes does not change the state of the code."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Processor seconds until now: of the machine, and of this process with its ended children."""

    time: float
    machine: float
    own: float

    @classmethod
    def now(cls) -> "Usage":
        fields = [int(part) for part in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
        busy = (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return cls(time.monotonic(), busy, sum(each.ru_utime + each.ru_stime for each in used))

    def others_since(self, before: "Usage") -> float:
        """Return how many cores other processes have used on average."""
        others = (self.machine - before.machine) - (self.own - before.own)
        return round(max(0.0, others / (self.time - before.time)), 2)


def wait_until_quiet(busy: float, patience: float) -> tuple[float, float]:
    """Wait for a quiet machine; return the cores that others use, and the seconds of waiting."""
    begun = time.monotonic()
    while True:
        before = Usage.now()
        time.sleep(SAMPLE)
        others = Usage.now().others_since(before)
        waited = time.monotonic() - begun
        if others < busy or waited > patience:
            return others, round(waited, 1)


def commit() -> str:
    """Return the commit, with `+` if the tree differs from it."""
    try:
        name = _git("rev-parse", "--short=10", "HEAD")
        return name + (
            "+" if _git("status", "--porcelain", "--untracked-files=no", "--", ".", *_WRITTEN) else ""
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def run(benchmark: Benchmark, wanted: argparse.Namespace) -> bool:
    """Run one benchmark and keep its result; False if it failed, which keeps the earlier result."""
    before, waited = wait_until_quiet(wanted.busy, wanted.patience)
    command = benchmark.command(short=wanted.short)
    load, begun, usage = os.getloadavg()[0], datetime.now(UTC), Usage.now()
    print(f"{begun:%H:%M:%S} python {' '.join(command)} (others use {before} cores)", flush=True)
    done = subprocess.run(
        [sys.executable, *command], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False
    )
    lines = [found for line in done.stdout.splitlines() if (found := _as_json(line)) is not None]
    if done.returncode or not lines:
        print(f"{benchmark.name} FAILED with status {done.returncode}\n{done.stdout[-2000:]}", flush=True)
        return False
    result = {
        "command": f"python {' '.join(command)}",
        "short": wanted.short,
        "commit": commit(),
        "date": f"{begun:%Y-%m-%d}",
        "seconds": round((datetime.now(UTC) - begun).total_seconds()),
        "cores": os.cpu_count(),
        "quiet": before < wanted.busy,
        "waited_s": waited,
        "others_before": before,
        "others_during": Usage.now().others_since(usage),
        "load_before": round(load, 2),
        "load_after": round(os.getloadavg()[0], 2),
        "figures": lines,
    }
    RESULTS.mkdir(exist_ok=True)
    text = json.dumps(result, indent=1) + "\n"
    (RESULTS / f"{benchmark.name}.json").write_text(text, encoding="utf-8")
    print(f"  {result['seconds']} s, others used {result['others_during']} cores meanwhile", flush=True)
    return True


def _as_json(line: str) -> dict[str, Any] | None:
    with suppress(json.JSONDecodeError):
        found = json.loads(line)
        return found if isinstance(found, dict) else None
    return None


def main() -> None:
    """Run what is asked for; the status is 1 if a benchmark failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [each.name for each in BENCHMARKS]
    parser.add_argument("--only", default="", help=f"of {', '.join(names)}")
    parser.add_argument("--with", dest="also", default="", help="optional ones, beside the others")
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--busy", type=float, default=0.3, help="cores used by others, at most")
    parser.add_argument("--patience", type=float, default=60.0, help="seconds to wait for that, at most")
    wanted = parser.parse_args()
    only, also = ({part for part in text.split(",") if part} for text in (wanted.only, wanted.also))
    if unknown := (only | also) - set(names):
        parser.error(f"there is no benchmark {', '.join(sorted(unknown))}")
    chosen = [
        each for each in BENCHMARKS if (each.name in only if only else not each.optional) or each.name in also
    ]
    failed = [each.name for each in chosen if not run(each, wanted)]
    tables.rewrite()
    for each in chosen:
        if each.name not in failed and not tables.on_page(each.name):
            print(tables.render(each))
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
