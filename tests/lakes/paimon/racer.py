"""A process that commits prepared events while another one does so too; see test_races.

Usage: racer.py LOCATION USER EVENTS PAUSE_SECONDS, with one FilesWritten in JSON per line of EVENTS. It says
"ready", waits for a line, commits, and says how many conflicts it met.
"""

import sys
import time
from pathlib import Path

from sluicegate.events.models import FilesWritten
from sluicegate.lakes.paimon.committer import PaimonCommitter
from sluicegate.lakes.port import CommitRequest, Found, Published, SnapshotRef
from sluicegate.lakes.storage_local import LocalStorage


class SlowStorage(LocalStorage):
    """Pauses at the link, where a check and a rename would let another commit slip in between."""

    pause = 0.0

    def link(self, draft: str, target: str) -> None:
        time.sleep(self.pause)  # time: makes the race wider; nothing waits for it
        super().link(draft, target)


def main(location: str, user: str, events: str, pause: str) -> None:
    storage = SlowStorage(location)
    storage.pause = float(pause)
    committer = PaimonCommitter(storage, user)
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
