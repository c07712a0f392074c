"""A process that commits prepared events while another one does so too; see test_races.

Usage: racer.py sql|rest CATALOG NAMESPACE USER EVENTS PAUSE_SECONDS, with one FilesWritten in JSON per line
of EVENTS. It prints "ready", waits for a line, commits, and prints the number of conflicts.
"""

import random
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from requests import Response

from sluicegate.events.models import FilesWritten
from sluicegate.lakes.iceberg.catalog import Catalog, Identifier
from sluicegate.lakes.iceberg.committer import IcebergCommitter
from sluicegate.lakes.iceberg.files import Files
from sluicegate.lakes.iceberg.rest import RestTable
from sluicegate.lakes.iceberg.sql import SqlCatalog
from sluicegate.lakes.port import CommitRequest, Found, Published, SnapshotRef


def pause(most: float) -> None:
    """Wait up to so many seconds, where others could come between."""
    time.sleep(random.uniform(0, most))  # time: makes the race wider; nothing waits for it


class SlowCatalog(SqlCatalog):
    """Pauses at the change of the database, where a check of the head would let another commit slip in."""

    most = 0.0

    def _swap(self, old: str, new: str) -> bool:
        pause(self.most)
        return super()._swap(old, new)


class SlowTable(RestTable):
    """Pauses at the request that decides a commit."""

    most = 0.0

    def _send(
        self,
        method: str,
        endpoint: str,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        if method == "POST":
            pause(self.most)
        return super()._send(method, endpoint, body, headers)


def opened(kind: str, uri: str, namespace: str, files: Files, most: float) -> Catalog:
    """Return the slow access to the table `numbers`."""
    name = Identifier((namespace,), "numbers")
    catalog: SlowCatalog | SlowTable
    if kind == "rest":
        catalog = SlowTable({"uri": uri}, "default", name, files)
    else:
        catalog = SlowCatalog(uri, "default", name, files)
    catalog.most = most
    return catalog


def main(kind: str, uri: str, namespace: str, user: str, events: str, most: float) -> None:
    files = Files()
    committer = IcebergCommitter(opened(kind, uri, namespace, files, most), files, user, "main")
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
            pause(most)
            outcome = committer.publish(CommitRequest(decision, f"digest-{decision}", head, None, [event]))
            if isinstance(outcome, Published):
                recorded = outcome.snapshot
                break
            conflicts += 1
    print(conflicts)


if __name__ == "__main__":
    kind, uri, namespace, user, events, most = sys.argv[1:]
    main(kind, uri, namespace, user, events, float(most))
