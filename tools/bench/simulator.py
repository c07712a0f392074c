"""The simulator: schedules without a violation, steps a second, and the rows that were hit least.

    python -m tools.bench.simulator [--seeds 1000] [--seed 90000000]

One process on one core. `cpu_steps_per_s` counts processor time, which busy neighbours disturb less.
"""

import argparse
import json
import resource
import subprocess
import sys
from typing import Final

_SIMULATE: Final = (sys.executable, "-c", "from sluicegate.cli.main import main; main()", "simulate")
RAREST: Final = 6


def main() -> None:
    """Run the schedules; the status is that of the simulator, 1 for a violation."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=90_000_000)
    wanted = parser.parse_args()
    command = [*_SIMULATE, "--seeds", str(wanted.seeds), "--seed", str(wanted.seed), "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    if done.returncode:
        print(done.stdout[-2000:], file=sys.stderr)
        sys.exit(done.returncode)
    found = json.loads(done.stdout.splitlines()[-1])
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    coverage = sorted(found.pop("coverage").items(), key=lambda row: row[1])
    figures = {
        **found,
        "first_seed": wanted.seed,
        "cpu_steps_per_s": round(found["steps"] / (used.ru_utime + used.ru_stime)),
        "rows": len(coverage),
        "rarest": dict(coverage[:RAREST]),
    }
    print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
