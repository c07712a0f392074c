"""A first writer, as a pod or anywhere else: two orders become one commit of a Delta table.

    python first_rows.py options.toml

The file has the options of the driver (docs/writers/python.md). The table is made if there is none. The
address and the keys of an object store are in the environment, where both libraries read them. A second run
adds the next two orders.
"""

import sys
import tomllib
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable

from sluicegate.writer_hooks import RegionDriver

COLUMNS = pa.schema([("id", pa.int64()), ("item", pa.string())])


def main(file: Path) -> None:
    """Write two rows, wait for their commit, and print the table as another library reads it."""
    options = tomllib.loads(file.read_text(encoding="utf-8"))
    DeltaTable.create(options["table"], COLUMNS, mode="ignore")
    with RegionDriver(options) as driver:
        # The place to continue from is that of the last commit: nothing is kept in the pod.
        after = driver.committed
        first = after.source_offsets["next"] if after is not None else 1
        rows = [{"id": number, "item": f"item {number}"} for number in (first, first + 1)]
        checkpoint = driver.begin()
        result = checkpoint.write("w0", pa.Table.from_pylist(rows, COLUMNS))
        driver.complete(checkpoint, [result], source_offsets={"next": first + 2})
        driver.await_commit(checkpoint)
    print(f"committed: {len(rows)} rows")
    for row in sorted(
        DeltaTable(options["table"]).to_pyarrow_table().to_pylist(), key=lambda each: each["id"]
    ):
        print(row["id"], row["item"], sep="  ")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
