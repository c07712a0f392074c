"""Another writer of a table, in a process of its own: appends ids with the format's library.

python -m tests.faults.foreign TABLE ID...
"""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.faults.tables import kind_of

ROOT = Path(__file__).parents[2]


async def append_elsewhere(table: Path, ids: Sequence[int]) -> None:
    """Append rows in another process, and wait for its end."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.faults.foreign", str(table), *map(str, ids), cwd=ROOT
    )
    if await process.wait():
        raise RuntimeError(f"the foreign writer ended with {process.returncode}")


if __name__ == "__main__":
    named = Path(sys.argv[1])
    kind_of(named).append(named, [int(each) for each in sys.argv[2:]])
