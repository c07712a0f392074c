"""A process that commits prepared events while another one does so too; see test_races.

Usage: racer.py CATALOG USER EVENTS PAUSE_SECONDS, with one FilesWritten in JSON per line of EVENTS. It says
"ready", waits for a line, commits, and says how many conflicts it met.
"""

import sys
import time
from pathlib import Path

from sluicegate.events.models import FilesWritten
from sluicegate.lakes.iceberg.catalog import Identifier
from sluicegate.lakes.iceberg.committer import IcebergCommitter
from sluicegate.lakes.iceberg.files import Files
from sluicegate.lakes.iceberg.sql import SqlCatalog
from sluicegate.lakes.port import CommitRequest, Found, Published, SnapshotRef


class SlowCatalog(SqlCatalog):
    """Pauses at the change of the database, where a check of the head would let another commit slip in."""

    pause = 0.0

    def _swap(self, old: str, new: str) -> bool:
        time.sleep(self.pause)  # time: makes the race wider; nothing waits for it
        return super()._swap(old, new)


def main(uri: str, user: str, events: str, pause: str) -> None:
    files = Files()
    catalog = SlowCatalog(uri, "default", Identifier(("db",), "numbers"), files)
    catalog.pause = float(pause)
    committer = IcebergCommitter(catalog, files, user, "main")
    table = committer.inspect().identity
    recorded: SnapshotRef | None = None
    conflicts = 0
    prepared = [FilesWritten.model_validate_json(line) for line in Path(events).read_text().splitlines()]
    committer.check(prepared)
    print("ready", flush=True)
    sys.stdin.readline()
    for decision, event in enumerate(prepared, 1):
        while True:
            answer = committer.ask(decision, f"digest-{decision}", table, recorded)
            if isinstance(answer, Found):
                recorded = answer.snapshot
                break
            head = answer.head  # type: ignore[union-attr]
            outcome = committer.publish(CommitRequest(decision, f"digest-{decision}", head, None, [event]))
            if isinstance(outcome, Published):
                recorded = outcome.snapshot
                break
            conflicts += 1
    print(conflicts)


if __name__ == "__main__":
    main(*sys.argv[1:])
