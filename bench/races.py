"""Committers of one commit user that race for every commit of a Paimon table: nothing lost, nothing doubled.

    python -m bench.races [--ids 100] [--processes 3] [--rounds 10] [--pause 3] [--json]

Each process has the same decisions and works through them as a coordinator does: ask, publish on the head
that was asked, ask again unless it was published. A failpoint holds every publication up for some
milliseconds right before the link that decides it, which is where others come in between. After each round
the table is read by a reader that shares no code with any writer.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from sluicegate.events.models import FilesWritten
from sluicegate.failpoints.points import VARIABLE, arm_from
from sluicegate.lakes.port import Absent, CommitRequest, Conflict, Found, OutcomeUnknown, Published
from sluicegate.lakes.registry import adapter
from tests.faults.tables import create_table, tally
from tests.integration.job import Job

ROOT = Path(__file__).parents[1]
USER = "racer"


def work(folder: Path) -> Counter[str]:
    """One process: commit every decision, however long it takes; what came of the publications."""
    arm_from(os.environ)
    table = str(folder / "db.db" / "flights")
    events = [FilesWritten.model_validate_json(line) for line in (folder / "events").read_text().splitlines()]
    committer = adapter("paimon").open_committer(adapter("paimon").parse_table(table), USER)
    identity = committer.inspect().identity
    recorded = None
    outcomes: Counter[str] = Counter()
    for number, event in enumerate(events, start=1):
        digest = f"digest-{number}"
        while True:
            answer = committer.ask(number, digest, identity, recorded)
            outcomes[f"asked: {type(answer).__name__}"] += 1
            if isinstance(answer, Found):
                recorded = answer.snapshot
                break
            if not isinstance(answer, Absent):
                # Another process is ahead: all decisions up to its own have been committed.
                break
            recorded = answer.head
            done = committer.publish(CommitRequest(number, digest, answer.head, None, [event]))
            outcomes[type(done).__name__] += 1
            if isinstance(done, Published):
                recorded = done.snapshot
                break
            if not isinstance(done, Conflict | OutcomeUnknown):
                raise TypeError(f"decision {number}: {done}")
    return outcomes


async def race(folder: Path, options: argparse.Namespace) -> Counter[str]:
    """One round with a table of its own. Exits if the table is not exact."""
    table = create_table(folder, "flights")
    job = Job("", None, "flights", str(table))  # type: ignore[arg-type]
    events = await asyncio.to_thread(
        lambda: [job.write_files([number]).model_dump_json() for number in range(options.ids)]
    )
    (folder / "events").write_text("\n".join(events))
    rule = f"lake.put.before=delay:{options.pause}"
    processes = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bench.races", "--work", str(folder)),
            cwd=ROOT,
            env={**os.environ, VARIABLE: rule},
            stdout=asyncio.subprocess.PIPE,
        )
        for _ in range(options.processes)
    ]
    outcomes: Counter[str] = Counter()
    for process in processes:
        out, _ = await process.communicate()
        if process.returncode:
            raise SystemExit(f"a process ended with {process.returncode}")
        outcomes.update(json.loads(out.splitlines()[-1]))
    found = tally(table, range(options.ids), USER)
    if not found.exact or found.commits != options.ids:
        raise SystemExit(f"the table is not exact: {found}")
    return outcomes


async def run(options: argparse.Namespace) -> dict[str, Any]:
    """All rounds."""
    started = time.monotonic()
    outcomes: Counter[str] = Counter()
    for number in range(options.rounds):
        with tempfile.TemporaryDirectory() as name:
            found = await race(Path(name), options)
        print(f"round {number + 1}: {dict(found)}", flush=True)
        outcomes.update(found)
    return {
        "rounds": options.rounds,
        "processes": options.processes,
        "commits": options.rounds * options.ids,
        "lost": 0,
        "doubled": 0,
        "outcomes": dict(outcomes),
        "seconds": round(time.monotonic() - started),
    }


def main() -> None:
    """Race and print; the last line is JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ids", type=int, default=100)
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--pause", type=int, default=3, help="milliseconds")
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    found = work(options.work) if options.work else asyncio.run(run(options))
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
