"""`python -m tools.bench all` measures every figure, `… compare REV` two commits in turn."""

import sys

from tools.bench import all as every
from tools.bench import compare

COMMANDS = {"all": every.main, "compare": compare.main}

if __name__ == "__main__":
    if sys.argv[1:2] == [] or sys.argv[1] not in COMMANDS:
        sys.exit(f"{__doc__}\nEach has --help.")
    name = sys.argv.pop(1)
    COMMANDS[name]()
