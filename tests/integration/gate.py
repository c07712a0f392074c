"""A gate in a query: a row waits in Spark's worker until the test lets it go."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

HELD: Final = 100
"""Id of the row that waits."""


class Gate:
    """Holds the batch with the row 100. The function of that row waits, until the gate is opened."""

    def __init__(self, folder: Path) -> None:
        self.began, self._pipe = folder / "began", folder / "gate"
        os.mkfifo(self._pipe)
        # With both directions, neither this nor a write waits for the other end.
        self._end = os.open(self._pipe, os.O_RDWR)

    def hold(self, rows: "DataFrame") -> "DataFrame":
        """Return the rows; their column `id` goes through the gate."""
        from pyspark.sql.functions import col, udf
        from pyspark.sql.types import LongType

        return rows.withColumn("id", udf(self._function(), LongType(), useArrow=False)(col("id")))

    def _function(self) -> Callable[[int], int]:
        began, pipe, held = str(self.began), str(self._pipe), HELD

        def wait(number: int) -> int:
            if number == held and not os.path.exists(began):
                open(began, "w").close()
                with open(pipe, "rb", buffering=0) as opened:
                    opened.read(1)
            return number

        return wait

    def open(self) -> None:
        """Let the row go."""
        os.write(self._end, b"x")

    def close(self) -> None:
        """Close the pipe. The query has ended."""
        os.close(self._end)


@contextmanager
def gate_in(folder: Path) -> Iterator[Gate]:
    """Make a gate, for a query that ends in the block."""
    gate = Gate(folder)
    try:
        yield gate
    finally:
        gate.close()
