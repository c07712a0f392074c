"""The delay of healthy regions beside a slow one: the demo with and without it, in turn, and the ratio.

python -m tools.bench.slow_region [--runs 3] [--rows 336776] [--full] [--json]
"""

import argparse
import json
import subprocess
import sys
from statistics import median
from typing import Any, Final

_DEMO: Final = (
    sys.executable,
    "-c",
    "from sluicegate.cli.main import main; main()",
    "demo",
    "--json",
    "--slow-region",
)
_SLOW: Final = "JFK"


def run(rows: int, *flags: str) -> dict[str, Any]:
    """Run the demo once; returns what it said. Raises CalledProcessError."""
    command = [*_DEMO, _SLOW, "--rows", str(rows), *flags]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def line(name: str, found: dict[str, Any]) -> str:
    """One run in a line."""
    exact = found["rows"] == found["expected"] and not found["missing"] and not found["duplicated"]
    return (
        f"{name:<15} {'exact' if exact else 'NOT EXACT':<9}  commits {found['commits']:>3}  "
        f"partial {found['partial_cuts']:>3}  in a row {found['max_consecutive_fallbacks']}  "
        f"forced {found['forced_full']:>2}  given up {found['abandoned']:>2}  "
        f"p50 {found['healthy_p50_ms']:>5g} ms, while slow {found['healthy_p50_while_slow_ms']:>5g} ms  "
        f"longest of {_SLOW} {found['slow_longest_ms']} ms"
    )


def main() -> None:
    """Run both in turn, so that what else the machine does meets both alike."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="pairs of runs")
    parser.add_argument("--full", action="store_true", help="first once each with full cuts only")
    parser.add_argument("--rows", type=int, default=336_776)
    parser.add_argument("--json", action="store_true")
    wanted = parser.parse_args()
    calm: list[float] = []
    slow: list[float] = []

    def tell(name: str, found: dict[str, Any]) -> None:
        print(json.dumps({"run": name, **found}) if wanted.json else line(name, found), flush=True)

    if wanted.full:
        tell("calm, full cuts", run(wanted.rows, "--calm", "--full-cuts"))
        tell("slow, full cuts", run(wanted.rows, "--full-cuts"))
    for _ in range(wanted.runs):
        found = run(wanted.rows, "--calm")
        calm.append(found["healthy_p50_ms"])
        tell("calm", found)
        found = run(wanted.rows)
        slow.append(found["healthy_p50_while_slow_ms"])
        tell("slow", found)
    if wanted.json:
        return
    print(
        f"healthy regions, from a batch to its commit, p50: {median(calm):g} ms without a slow region, "
        f"{median(slow):g} ms while {_SLOW} was slow or silent: ratio {median(slow) / median(calm):.2f}"
    )


if __name__ == "__main__":
    main()
