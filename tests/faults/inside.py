"""A place that has no failpoint: inside of the transaction that changes the entries of several tables.

The product has none there, because a process that stands still at it would keep others from the tables.
"""

import os
import signal
from pathlib import Path
from typing import Any, Final

from sqlalchemy import event
from sqlalchemy.engine import Connection, Engine

INSIDE: Final = ("inside.1", "inside.2", "inside.3")
"""After so many updates of a transaction, and before its COMMIT."""
_UPDATES: Final = "sluicegate-updates"


def kill_inside(tickets: str, hits: str) -> None:
    """Let this process kill itself at one of these places, if a file of its name is in the folder `tickets`.

    The kill is noted in the log of hits, as one of a failpoint.
    """

    def begin(connection: Connection) -> None:
        connection.info[_UPDATES] = 0

    def count(connection: Connection, cursor: Any, statement: str, *_: Any) -> None:
        if not statement.startswith("UPDATE iceberg_tables"):
            return
        connection.info[_UPDATES] += 1
        place = f"inside.{connection.info[_UPDATES]}"
        try:
            (Path(tickets) / place).unlink()
        except FileNotFoundError:
            return
        with open(hits, "a", encoding="utf-8") as log:
            log.write(f"{os.getpid()} {place} 1 kill\n")
        os.kill(os.getpid(), signal.SIGKILL)

    event.listen(Engine, "begin", begin)
    event.listen(Engine, "after_cursor_execute", count)
