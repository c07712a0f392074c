"""Read the table of examples/spark_streaming.py with pypaimon, and print its rows.

    python examples/read_table.py /tmp/lake

It shares no code with Sluicegate: the rows come from the table's newest snapshot alone.
"""

import sys
from pathlib import Path

from pypaimon import CatalogFactory


def main(lake: Path) -> None:
    """Print each row, and the number of rows."""
    table = CatalogFactory.create({"warehouse": str(lake / "warehouse")}).get_table("default.flights")
    builder = table.new_read_builder()
    rows = builder.new_read().to_arrow(builder.new_scan().plan().splits()).to_pylist()
    for row in sorted(rows, key=lambda each: str(each["at"])):
        print(f"{row['flight']:<8} {row['airport']} {row['at']:%Y-%m-%d %H:%M}")
    print(f"{len(rows)} rows")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
