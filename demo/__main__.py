"""`python -m sluicegate.demo`, the same as `sluicegate demo`."""

import sys

from sluicegate.cli import main

if __name__ == "__main__":
    main(["demo", *sys.argv[1:]], prog_name="sluicegate")
