"""Time of a Paimon commit: ours beside bare pypaimon, with the same entries, in turn.

    python -m tools.bench.paimon_commit [--sizes 10,1000,10000] [--ages 0,100,500] [--samples 60]

A sample is one commit to each of two tables. Ours has two parts, as in the service: the check of the events
before the decision (entries and files are examined), and the publication after it, which takes what the check
returned. The check runs while a commit waits for its turn, the publication is on the way to the snapshot.
pypaimon has no check. Each file exists with its size, but has no content; neither side reads it.
`bodies` is the time to read the events from their JSON; the service does that once, before the check.
Times are milliseconds. `age` is the number of earlier commits of 10 files.
"""

import argparse
import gc
import json
import logging
import shutil
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pypaimon import CatalogFactory, Schema
from pypaimon.data.timestamp import Timestamp
from pypaimon.manifest.schema.data_file_meta import DataFileMeta
from pypaimon.manifest.schema.manifest_entry import ManifestEntry
from pypaimon.manifest.schema.simple_stats import SimpleStats
from pypaimon.table.row.generic_row import GenericRow
from pypaimon.write.commit_message import CommitMessage
from pypaimon.write.table_commit import StreamTableCommit

from sluicegate.events.codec import read_files
from sluicegate.events.envelope import Envelope, EventType, with_counts
from sluicegate.events.models import FileInfo, FilesWritten
from sluicegate.lakes.paimon.adapter import ADAPTER
from sluicegate.lakes.paimon.entries import BUCKET, FORMAT, FORMAT_VERSION, TOTAL_BUCKETS, encode_entry
from sluicegate.lakes.port import Absent, Checked, CommitRequest, Published

COLUMNS = pa.schema(
    [
        ("id", pa.int64()),
        ("day", pa.string()),
        ("name", pa.string()),
        ("value", pa.float64()),
        ("at", pa.int64()),
    ]
)
DAYS = 4
WRITTEN = Envelope("e", EventType.FILES_WRITTEN, "bench", "r1", "q1", 0, "w0", "a0")
FILES_PER_EVENT = 10


class Sample(NamedTuple):
    """Milliseconds of one commit."""

    pypaimon: float
    check: float
    publication: float
    bodies: float


class Bench:
    """The same table twice: one committed to by us, one by pypaimon."""

    def __init__(self, folder: Path) -> None:
        catalog = CatalogFactory.create({"warehouse": str(folder)})
        catalog.create_database("db", True)
        options = {"bucket": "-1", "metadata.stats-mode": "full"}
        for name in ("ours", "theirs"):
            catalog.create_table(
                f"db.{name}",
                Schema.from_pyarrow_schema(COLUMNS, partition_keys=["day"], options=options),
                False,
            )
        self.table = catalog.get_table("db.theirs")
        self.location = str(folder / "db.db" / "ours")
        self.committer = ADAPTER.open_committer(ADAPTER.parse_table(self.location), "bench")
        state = self.committer.inspect()
        self.identity, self.recorded, self.decision = state.identity, state.head, 0
        self.bare = StreamTableCommit(self.table, "bench")

    def meta(self) -> DataFileMeta:
        fields = self.table.fields
        low = GenericRow([1, "d", "a" * 12, 0.5, 1_700_000_000_000], fields)
        high = GenericRow([10**6, "d", "z" * 12, 99.5, 1_700_000_900_000], fields)
        empty = GenericRow([], [])
        return DataFileMeta.create(
            file_name=f"data-{uuid.uuid4()}-0.parquet", file_size=1_234_567, row_count=10_000,
            min_key=empty, max_key=empty, key_stats=SimpleStats(empty, empty, []),
            value_stats=SimpleStats(low, high, [0] * 5),
            min_sequence_number=0, max_sequence_number=0, schema_id=0, level=0, extra_files=[],
            creation_time=Timestamp.now(), delete_row_count=0, file_source=0, value_stats_cols=None,
            external_path=None, first_row_id=None, write_cols=None, file_path="",
        )  # fmt: skip

    def work(self, files: int) -> tuple[list[CommitMessage], list[FilesWritten]]:
        """The same files as pypaimon's commit messages and as our events."""
        messages, infos = [], []
        for day in range(min(DAYS, files)):
            value = f"2026-01-0{day + 1}"
            row = GenericRow([value], self.table.partition_keys_fields)
            metas = [self.meta() for _ in range(day, files, DAYS)]
            messages.append(CommitMessage((value,), BUCKET, metas))
            for meta in metas:
                infos.append(
                    FileInfo(
                        path=f"day={value}/bucket-0/{meta.file_name}",
                        size=meta.file_size,
                        rows=meta.row_count,
                        partition={"day": value},
                        metadata=encode_entry(ManifestEntry(0, row, BUCKET, TOTAL_BUCKETS, meta)),
                    )
                )
        events = [
            FilesWritten(
                format=FORMAT, format_version=FORMAT_VERSION, location=Path(self.location).as_uri(),
                schema_id=0, files=tuple(infos[start : start + FILES_PER_EVENT]),
            )
            for start in range(0, len(infos), FILES_PER_EVENT)
        ]  # fmt: skip
        return messages, events

    def upload(self, events: list[FilesWritten]) -> None:
        """Make the files, without content."""
        folders = set[Path]()
        for file in (file for event in events for file in event.files):
            path = Path(self.location) / file.path
            if path.parent not in folders:
                path.parent.mkdir(parents=True, exist_ok=True)
                folders.add(path.parent)
            with path.open("wb") as made:
                made.truncate(file.size)

    def drop(self) -> None:
        """Remove the files, which nothing reads, and keep the table small."""
        for folder in Path(self.location).glob("day=*"):
            shutil.rmtree(folder)

    def theirs(self, messages: list[CommitMessage]) -> None:
        self.bare.file_store_commit.commit(messages, self.decision)

    def ours(self, events: list[Checked]) -> None:
        """Ask, then publish: both are part of every commit of ours."""
        digest = str(self.decision)
        answer = self.committer.ask(self.decision, digest, self.identity, self.recorded)
        if not isinstance(answer, Absent):
            raise TypeError(answer)
        done = self.committer.publish(CommitRequest(self.decision, digest, answer.head, None, events))
        if not isinstance(done, Published):
            raise TypeError(done)
        self.recorded = done.snapshot

    def sample(self, files: int) -> Sample:
        """Commit the same files to both tables."""
        self.decision += 1
        messages, events = self.work(files)
        bodies = [event.model_dump_json().encode() for event in events]
        self.upload(events)
        gc.collect()
        envelopes = [with_counts(WRITTEN, event) for event in events]
        read = timed(lambda: [read_files(*each) for each in zip(envelopes, bodies, strict=True)])
        found: list[Checked] = []
        checked = timed(lambda: found.extend(self.committer.check(events)))
        rounds = {"theirs": lambda: self.theirs(messages), "ours": lambda: self.ours(found)}
        order = ("theirs", "ours") if self.decision % 2 else ("ours", "theirs")
        took = {name: timed(rounds[name]) for name in order}
        self.drop()
        return Sample(took["theirs"], checked, took["ours"], read)


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1e3


def quantiles(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {
        "median": round(statistics.median(ordered), 2),
        "p99": round(ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))], 2),
    }


def measure(age: int, files: int, samples: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        for _ in range(age):
            bench.sample(10)
        runs = [bench.sample(files) for _ in range(samples)]
    found = {name: quantiles([getattr(run, name) for run in runs]) for name in Sample._fields}
    theirs, publication = found["pypaimon"]["median"], found["publication"]["median"]
    both = statistics.median(run.check + run.publication for run in runs)
    return {
        "age": age, "files": files, "samples": samples, **found,
        "ratio_publication": round(theirs / publication, 1), "ratio_both": round(theirs / both, 1),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", default="10,1000,10000")
    parser.add_argument("--ages", default="0,100,500")
    parser.add_argument("--samples", type=int, default=60)
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    for age in (int(part) for part in arguments.ages.split(",")):
        for files in (int(part) for part in arguments.sizes.split(",")):
            samples = arguments.samples if files < 5_000 else max(5, arguments.samples // 4)
            print(json.dumps(measure(age, files, samples)), flush=True)


if __name__ == "__main__":
    main()
