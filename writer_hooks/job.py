"""Batch jobs: everything that a job writes is one commit, and a job id is committed once.

The jobs of a region follow each other. Its source offsets are the ids of its newest jobs, so the committed
position states which jobs are committed. A job registers a new incarnation at that position. Two jobs of one
region at the same time exclude each other: the older one raises RegionReplaced.

A job that only an unresolved decision includes is neither committed nor free: its next start waits for the
outcome. After a commit it is not written again, after a revert it is.

The events of a job are published at its end, together with its completion, which carries the files itself if
they are those of one writer. Until then its region is idle, so no commit of another region waits for the job,
also not for one that died.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self

from sluicegate.events.envelope import EventType
from sluicegate.events.models import CheckpointCompleted, Position
from sluicegate.writer_hooks.commit_feed import CommitFeed
from sluicegate.writer_hooks.driver_state import (
    CommittedCheckpoint,
    DriverState,
    begin_incarnation,
    completion,
    offsets_text,
    parsed_offsets,
    probe,
)
from sluicegate.writer_hooks.errors import BadOption, HookError, SourceOffsetsUnknown
from sluicegate.writer_hooks.numbering import keys_of, numbers_of, read_floor
from sluicegate.writer_hooks.options import UPLOAD, SinkOptions, require_name
from sluicegate.writer_hooks.publisher import publish_completion
from sluicegate.writer_hooks.region import LONGEST_OFFSETS, Region, Registered
from sluicegate.writer_hooks.writer import OpenCheckpoint, Rows, WriterResult

_KIND: Final = "job-"
_MOST_IDS: Final = 1_000
"""Ids of jobs that a region remembers, if they are not too long together."""


@dataclass(frozen=True, slots=True)
class BegunJob:
    """A registered job, as data: another process can finish it."""

    options: Mapping[str, str] = field(repr=False)
    """Options of the job. They may contain a password, so they are not shown."""
    id: str
    registered: Registered
    base: Position | None
    """Position that the job follows."""
    done: tuple[str, ...]
    """Ids of the jobs of the region up to the base, oldest first."""
    numbers: tuple[int, int] | None = None
    """Sequence numbers of the rows, as of the checkpoint."""

    @property
    def checkpoint(self) -> OpenCheckpoint:
        """The checkpoint of the job, for its writers."""
        return OpenCheckpoint(
            self.options, self.registered.incarnation, self.number, held=True, numbers=self.numbers
        )

    @property
    def number(self) -> int:
        """Number of this checkpoint."""
        return self.base.checkpoint + 1 if self.base is not None else 0


class Job:
    """One batch job. Use it as a context: a job that is not finished leaves only files without an event.

    A region remembers the ids of its newest 1,000 jobs. An older id would be written again.
    """

    def __init__(self, options: Mapping[str, str], job_id: str) -> None:
        """Make a job; nothing is connected yet.

        `options` are those of the Spark sink, without `checkpointLocation`. Their region is one for jobs
        alone. Raises BadOption.
        """
        self._options = dict(options)
        parsed = SinkOptions.parse(options, located=False)
        if parsed.uploads is not None:
            raise BadOption(
                f"the option {UPLOAD} cannot be async: a job publishes everything at its end, and waits for "
                "the commit. Leave the option out of jobs"
            )
        self._region = parsed.region
        self._message_max_bytes = parsed.message_max_bytes
        self._id = require_name("job.id", job_id)
        self._state = DriverState(self._region)
        self._feed = CommitFeed(self._region, self._state.apply, self._state.doubt)
        self._begun: BegunJob | None = None
        self._completed: CheckpointCompleted | None = None
        """Completion that was published, perhaps without an acknowledgement."""

    @classmethod
    def resumed(cls, begun: BegunJob) -> Self:
        """Return a job that another process has started. Raises PublishFailed."""
        job = cls(begun.options, begun.id)
        job._feed.start()
        job._begin(begun)
        # A newer job may have registered before this process began to read.
        job._state.add_answered(begun.registered.run)
        job._state.doubt()
        return job

    def start(self) -> bool:
        """Register the job. Return False if a job of this id is committed already: then write nothing.

        In that case nothing is registered, so a job that runs in the region is not disturbed. While a
        decision that includes a job of the region has no outcome, the call waits for it, as long as the
        option `registration.timeout` states. Raises SourceOffsetsUnknown if the region has another kind of
        driver, RegionReplaced if another job has registered meanwhile, and errors of a registration.
        """
        try:
            self._feed.start()
            answer = probe(self._region, _KIND)
            if self._id in _ids_of(self._region, answer.committed, answer.source_offsets):
                self._feed.stop()
                return False
            options = SinkOptions.parse(self._options, located=False)
            keys = keys_of(options)
            found = begin_incarnation(self._region, _KIND, rests=True, seen=answer)
            done = _ids_of(self._region, found.base, found.source_offsets)
            # The checkpoint of a job is the first one after its base.
            numbers = numbers_of(read_floor(options, keys), 1)
        except BaseException:
            self._feed.stop()
            raise
        if self._id in done:  # another process has finished it meanwhile
            self._feed.stop()
            return False
        self._begin(BegunJob(self._options, self._id, found.registered, found.base, done, numbers))
        return True

    def _begin(self, begun: BegunJob) -> None:
        self._begun = begun
        after = None
        if begun.base is not None:
            after = CommittedCheckpoint(begun.base.checkpoint, {"jobs": list(begun.done)}, begun.base)
        self._state.begin(begun.registered, after)

    @property
    def begun(self) -> BegunJob:
        """The job as data. Raises HookError before `start`, and after the end."""
        if self._begun is None:
            raise HookError(f"the job {self._id} was not started, or has ended; call `start` to run it")
        return self._begun

    @property
    def checkpoint(self) -> OpenCheckpoint:
        """The checkpoint of the job, for writers in other processes."""
        return self.begun.checkpoint

    def write(
        self, writer: str, rows: Rows, table: str | None = None, part: tuple[int, int] = (0, 1)
    ) -> WriterResult:
        """Write rows as one writer of the job, as `OpenCheckpoint.write` does."""
        return self.checkpoint.write(writer, rows, table, part)

    def finish(self, results: Iterable[WriterResult], timeout: float | None = None) -> None:
        """Publish the events of these results and the completion, and wait until the job is committed.

        Without a timeout, in seconds, the wait ends with the commit or with RegionReplaced. After any error,
        run the job again with the same id: if it is committed, it is not written again. Raises PublishFailed,
        TimeoutError, NotOurs, or RegionReplaced.
        """
        begun, results = self.begun, tuple(results)
        registered, number = begun.registered, begun.number
        done = {"jobs": _newest([*begun.done, self._id])}
        body = completion(
            (registered.incarnation, number),
            results,
            predecessor=begun.base,
            source_offsets=offsets_text(done),
            watermark=None,
            listeners={},
        )
        if self._completed not in (None, body):
            raise HookError(
                f"the completion of the job {self._id} may be in the log with other results. Run the job "
                "again, with the same id"
            )
        self._completed = body
        position = Position(incarnation=registered.incarnation, checkpoint=number, digest=body.source_digest)
        if self._is_committed(position):
            return
        self._state.add_completed(CommittedCheckpoint(number, done, position))
        files = [message for result in results for message in result.held]
        incarnation = registered.incarnation
        completed = self._region.event(EventType.CHECKPOINT_COMPLETED, incarnation, body, checkpoint=number)
        # The region rests again once this is committed, so nothing follows it that a crash could lose.
        publish_completion(self._region, [completed], files, self._message_max_bytes)
        self._state.await_commit(number, timeout, lambda: self._state.check(registered, begun.base))

    def _is_committed(self, position: Position) -> bool:
        """Return True if an earlier try has completed the job, and it is committed."""
        answer = self._state.check(self.begun.registered, self.begun.base)
        return answer is not None and answer.committed == position

    def stop(self) -> None:
        """End the job. Without `finish`, nothing of it counts. Repeated calls are allowed."""
        self._feed.stop()
        self._begun = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def prepare_jobs(options: Mapping[str, str]) -> None:
    """Register a region for jobs before its first job, so that no commit of its stream waits for it.

    The options are those of its jobs. Call it once, when the stream is set up. Repetitions do no harm while
    no job runs. Raises the errors of `Job.start`.
    """
    region = SinkOptions.parse(options, located=False).region
    begin_incarnation(region, _KIND, rests=True)


def _ids_of(region: Region, base: Position | None, text: str | None) -> tuple[str, ...]:
    """Return the ids of the jobs up to the base, oldest first."""
    if base is None:
        return ()
    found: Any = parsed_offsets(text)
    ids = found.get("jobs") if isinstance(found, dict) else None
    if not isinstance(ids, list) or not all(isinstance(each, str) for each in ids):
        raise SourceOffsetsUnknown(
            f"the source offsets of the region {region.name} of the stream {region.stream} do not name its "
            "jobs, so an id could be written twice. Give the jobs a region of their own"
        )
    return tuple(ids)


def _newest(ids: list[str]) -> list[str]:
    """Return as many of the newest ids as fit into source offsets."""
    kept = ids[-_MOST_IDS:]
    while len(json.dumps(kept)) > LONGEST_OFFSETS - len('{"jobs":}'):
        kept = kept[1:]
    return kept
