"""A process that commits prepared events while another one does so too; see test_races.

Usage: racer.py LOCATION USER EVENTS PAUSE_SECONDS, with one FilesWritten in JSON per line of EVENTS. It says
"ready", waits for a line, commits, and says how many conflicts it met.
"""

import os
import random
import sys
import time
from pathlib import Path

from sluicegate.events.models import FilesWritten
from sluicegate.lakes.delta.committer import DeltaCommitter
from sluicegate.lakes.port import CommitRequest, Found, Published, SnapshotRef
from sluicegate.lakes.storage import Content, Storage
from sluicegate.lakes.storage_local import LocalStorage
from sluicegate.lakes.storage_objects import ObjectStorage, Stores, connect


class Pauses:
    """Random pauses, where a check and a later step would let another commit slip in between."""

    def __init__(self, longest: float) -> None:
        self._longest = longest
        self._dice = random.Random(os.getpid())

    def __call__(self) -> None:
        time.sleep(self._dice.uniform(0, self._longest))  # time: makes the race wider; nothing waits for it


class SlowFiles(LocalStorage):
    """Pauses at the link."""

    def __init__(self, location: str, pause: Pauses) -> None:
        super().__init__(location)
        self._pause = pause

    def link(self, draft: str, target: str) -> None:
        self._pause()
        super().link(draft, target)


class SlowObjects(ObjectStorage):
    """Pauses at the put."""

    def __init__(self, uri: str, stores: Stores, pause: Pauses) -> None:
        super().__init__(uri, stores)
        self._pause = pause

    def put_if_absent(self, name: str, content: Content) -> bool:
        self._pause()
        return super().put_if_absent(name, content)


def opened(location: str, pause: Pauses) -> Storage:
    """Return the storage of a table."""
    if "://" in location:
        return SlowObjects(location, connect(location), pause)
    return SlowFiles(location, pause)


def main(location: str, user: str, events: str, longest: str) -> None:
    pause = Pauses(float(longest))
    committer = DeltaCommitter(opened(location, pause), user)
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
            # Between the question and the building of the commit, the table may move on.
            pause()
            head = answer.head  # type: ignore[union-attr]
            outcome = committer.publish(CommitRequest(decision, f"digest-{decision}", head, None, [event]))
            if isinstance(outcome, Published):
                recorded = outcome.snapshot
                break
            conflicts += 1
    print(conflicts)


if __name__ == "__main__":
    main(*sys.argv[1:])
