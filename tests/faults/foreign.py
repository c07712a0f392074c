"""Another writer of a table, in a process of its own: appends ids with pypaimon, one commit for each.

python -m tests.faults.foreign TABLE ID...
"""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
from pypaimon import CatalogFactory

from tests.integration.job import SCHEMA

ROOT = Path(__file__).parents[2]


def append(table: Path, ids: Sequence[int]) -> None:
    """Append rows as the library does it by itself."""
    catalog = CatalogFactory.create({"warehouse": str(table.parents[1])})
    opened = catalog.get_table(f"{table.parent.name.removesuffix('.db')}.{table.name}")
    for each in ids:
        builder = opened.new_batch_write_builder()
        write, commit = builder.new_write(), builder.new_commit()
        rows = pa.table({"id": [each], "origin": ["foreign"], "at": [0]}).cast(SCHEMA)
        for batch in rows.to_batches():
            write.write_arrow_batch(batch)
        commit.commit(write.prepare_commit())
        write.close()
        commit.close()


async def append_elsewhere(table: Path, ids: Sequence[int]) -> None:
    """Append rows in another process, and wait for its end."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.faults.foreign", str(table), *map(str, ids), cwd=ROOT
    )
    if await process.wait():
        raise RuntimeError(f"the foreign writer ended with {process.returncode}")


if __name__ == "__main__":
    append(Path(sys.argv[1]), [int(each) for each in sys.argv[2:]])
