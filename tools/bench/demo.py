"""The demo, so many times in a row: whether its table is exact, and how long it takes.

    python -m tools.bench.demo [--runs 1] [--rows 336776] [--kill-coordinator [--kills 5]]

Prints the demo's own line of JSON for each run. With `--kill-coordinator` each run has other moments of its
kills. Ends with status 1 at the first table that is not exact, as the demo does.
"""

import argparse
import subprocess
import sys
from pathlib import Path
from typing import Final

DEMO: Final = (str(Path(sys.executable).with_name("sluicegate")), "demo", "--json")
FLIGHTS: Final = 336_776


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--rows", type=int, default=FLIGHTS)
    parser.add_argument("--kill-coordinator", action="store_true")
    parser.add_argument("--kills", type=int, default=5, help="in each run")
    wanted = parser.parse_args()
    for _ in range(wanted.runs):
        kills = ["--kill-coordinator", "--kills", str(wanted.kills)] if wanted.kill_coordinator else []
        command = [*DEMO, "--rows", str(wanted.rows), *kills]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        print(done.stdout.splitlines()[-1] if done.stdout else "", flush=True)
        if done.returncode:
            sys.exit(done.returncode)


if __name__ == "__main__":
    main()
