"""The demo, so many times in a row: whether its table is exact, and how long it takes.

    python -m bench.demo [--runs 1] [--rows 336776] [--kill-coordinator]

Prints the demo's own line of JSON for each run. With `--kill-coordinator` each run has other moments of its
five kills. Ends with status 1 at the first table that is not exact, as the demo does.
"""

import argparse
import subprocess
import sys
from typing import Final

_DEMO: Final = (sys.executable, "-m", "sluicegate.demo", "--json")
FLIGHTS: Final = 336_776


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--rows", type=int, default=FLIGHTS)
    parser.add_argument("--kill-coordinator", action="store_true")
    wanted = parser.parse_args()
    for number in range(wanted.runs):
        kills = ["--kill-coordinator", "--seed", str(number + 1)] if wanted.kill_coordinator else []
        command = [*_DEMO, "--rows", str(wanted.rows), *kills]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        print(done.stdout.splitlines()[-1] if done.stdout else "", flush=True)
        if done.returncode:
            sys.exit(done.returncode)


if __name__ == "__main__":
    main()
