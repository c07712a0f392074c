"""A process that commits prepared events while others do the same; see racing.

Usage: racer.py FORMAT LOCATION OPTIONS USER EVENTS PAUSE_MS, with the options in JSON, and a FilesWritten in
JSON in each line of EVENTS. It prints "ready", waits for a line, commits, and prints how often it conflicted.
"""

import json
import os
import random
import sys
import time
from pathlib import Path

from sluicegate.events.models import FilesWritten, SnapshotRef
from sluicegate.failpoints.points import arm_from
from sluicegate.lakes.port import Absent, CommitRequest, Found, Published, Refused
from sluicegate.lakes.registry import adapter


def main(name: str, location: str, options: str, user: str, events: str, pause_ms: str) -> None:
    arm_from(os.environ)
    lake = adapter(name)
    committer = lake.open_committer(lake.parse_table(location, json.loads(options)), user)
    table = committer.inspect().identity
    prepared = [FilesWritten.model_validate_json(line) for line in Path(events).read_text().splitlines()]
    checked = [committer.check([event]) for event in prepared]
    print("ready", flush=True)
    sys.stdin.readline()
    recorded: SnapshotRef | None = None
    conflicts = 0
    for decision, files in enumerate(checked, 1):
        while True:
            answer = committer.ask(decision, f"digest-{decision}", table, recorded)
            if isinstance(answer, Found):
                recorded = answer.snapshot
                break
            assert isinstance(answer, Absent), answer
            # Between the question and the building of the commit.
            time.sleep(random.uniform(0, int(pause_ms) / 1000))  # time: makes the race wider
            outcome = committer.publish(
                CommitRequest(decision, f"digest-{decision}", answer.head, None, files)
            )
            if isinstance(outcome, Published):
                recorded = outcome.snapshot
                break
            assert isinstance(outcome, Refused), outcome
            assert outcome.again, outcome
            conflicts += 1
    print(conflicts)


if __name__ == "__main__":
    main(*sys.argv[1:])
