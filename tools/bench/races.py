"""Committers of one commit user that race for every commit of a table: nothing lost, nothing doubled.

    python -m tools.bench.races [--formats paimon] [--stores local] [--ids 100] [--processes 3] [--rounds 10]
        [--pause 3]

Each process has the same decisions and works through them as a coordinator does: ask, publish on the head
that was asked, ask again unless it was published. There are two pauses of some milliseconds, where others
come in between: one of random length between the question and the building of the commit, and a failpoint
right before the step that decides it. After each round the table is read by a reader that shares no code
with any writer: our own for Paimon, DuckDB for the other formats. The store `s3proxy` is a real S3
server; the reader looks at the files in which it keeps its objects. `hdfs` is a real cluster, of which the
reader gets a mirror. One line of JSON for each format and store.
"""

import argparse
import asyncio
import json
import os
import random
import sys
import tempfile
import time
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

from sluicegate.events.models import FilesWritten
from sluicegate.failpoints.points import VARIABLE, arm_from
from sluicegate.lakes.port import Absent, CommitRequest, Found, OutcomeUnknown, Published
from sluicegate.lakes.registry import adapter
from tests.faults.stores import LOCAL, STORES, Store, location, opened
from tests.faults.tables import create_table, kind_of, tally
from tests.integration.job import Job
from tests.lakes.outcomes import is_refused

ROOT = Path(__file__).parents[2]
USER = "racer"


def work(folder: Path) -> Counter[str]:
    """One process: commit every decision, however long it takes; what came of the publications."""
    arm_from(os.environ)
    given = json.loads((folder / "work").read_text())
    events = [FilesWritten.model_validate_json(line) for line in (folder / "events").read_text().splitlines()]
    lake = adapter(given["format"])
    committer = lake.open_committer(lake.parse_table(given["table"], given["options"]), USER)
    identity = committer.inspect().identity
    print("ready", flush=True)
    # The slowest start is over then: all begin together.
    sys.stdin.readline()
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
            time.sleep(random.uniform(0.0, given["pause"] / 1000))
            done = committer.publish(CommitRequest(number, digest, answer.head, None, [event]))
            passing = is_refused(done, again=True)
            outcomes["Refused" if passing else type(done).__name__] += 1
            if isinstance(done, Published):
                recorded = done.snapshot
                break
            if not (passing or isinstance(done, OutcomeUnknown)):
                raise TypeError(f"decision {number}: {done}")
    return outcomes


async def race(folder: Path, lake: str, store: Store, options: argparse.Namespace) -> Counter[str]:
    """One round with a table of its own. Exits if the table is not exact."""
    place = folder if store.folder is None else store.folder / uuid.uuid4().hex
    table = create_table(place, "flights", lake)
    of_adapter = dict(kind_of(table).options(table))
    where = location(table)
    job = Job("", None, "flights", where, lake=lake, lake_options=of_adapter)  # type: ignore[arg-type]
    events = await asyncio.to_thread(
        lambda: [job.write_files([number]).model_dump_json() for number in range(options.ids)]
    )
    (folder / "events").write_text("\n".join(events))
    given = {"format": lake, "table": where, "options": of_adapter, "pause": options.pause}
    (folder / "work").write_text(json.dumps(given))
    outcomes = sum(await compete(folder, options), Counter[str]())
    found = tally(table, range(options.ids), USER)
    if not found.exact or found.commits != options.ids:
        raise SystemExit(f"the table is not exact: {found}")
    return outcomes


async def compete(folder: Path, options: argparse.Namespace) -> list[Counter[str]]:
    """Let the processes loose together; what came of the publications of each."""
    pipe = asyncio.subprocess.PIPE
    environment = {**os.environ, VARIABLE: f"lake.put.before=delay:{options.pause}"}
    command = (sys.executable, "-m", "tools.bench.races", "--work", str(folder))
    log = folder / "log"
    with log.open("ab") as errors:
        processes = [
            await asyncio.create_subprocess_exec(
                *command, cwd=ROOT, env=environment, stdin=pipe, stdout=pipe, stderr=errors
            )
            for _ in range(options.processes)
        ]
    for process in processes:
        if process.stdout is not None:
            await process.stdout.readline()
    printed = await asyncio.gather(*(each.communicate(b"go\n") for each in processes))
    if any(each.returncode for each in processes):
        raise SystemExit(f"a process failed: {log.read_text()[-2000:]}")
    return [Counter(json.loads(out.splitlines()[-1])) for out, _ in printed]


async def run(lake: str, name: str, store: Store, options: argparse.Namespace) -> dict[str, Any]:
    """All rounds of one format in the store of a name."""
    started = time.monotonic()
    outcomes: Counter[str] = Counter()
    for number in range(options.rounds):
        with tempfile.TemporaryDirectory() as folder:
            found = await race(Path(folder), lake, store, options)
        print(f"round {number + 1}: {dict(found)}", flush=True)
        outcomes.update(found)
    return {
        "format": lake,
        "store": name,
        "rounds": options.rounds,
        "processes": options.processes,
        "commits": options.rounds * options.ids,
        "lost": 0,
        "doubled": 0,
        "outcomes": dict(outcomes),
        "seconds": round(time.monotonic() - started),
    }


def main() -> None:
    """Race and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--formats", default="paimon")
    parser.add_argument("--stores", default=LOCAL, help=f"of {','.join(STORES)}")
    parser.add_argument("--ids", type=int, default=100)
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--pause", type=int, default=3, help="milliseconds")
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        print(json.dumps(work(options.work)), flush=True)
        return
    for name in options.stores.split(","):
        with opened(name) as store:
            for lake in options.formats.split(","):
                print(json.dumps(asyncio.run(run(lake, name, store, options))), flush=True)


if __name__ == "__main__":
    main()
