"""Hooks that run inside the writing job: they write files to the table's folder and events to Kafka.

Why the parts exist
-------------------
A job writes one stream into its table, and into further tables of the catalog if its options name some. It
has one region, or several regions that may fail independently.
Each region reads its part of the source in checkpoints, numbered without gaps; a batch of Spark is a
checkpoint. The coordinator decides which checkpoints of all regions become one commit of all tables. The
hooks are the part of this protocol that runs in the job. They commit nothing, and import nothing of the
coordinator: both know only the events (`sluicegate.events`).

A table would be wrong if files counted as soon as they exist: tasks are tried twice, and drivers are
restarted. So a file counts in three steps. A task writes files under a name that contains its attempt. An
event `files.written` describes the files. An event `checkpoint.completed` names the events that count, once
for each checkpoint. A process that drives and writes sends the completion alone, with the files in it. All
other files are orphans. `sluicegate orphans` finds those that an event describes.

A driver is identified in two ways. An incarnation is one life of a region's checkpoint numbers; it begins
at a committed position, its base. A run is one registration of an incarnation, by one process. The newest
registration of a region is in force. Events of all earlier ones do not count any more.

What may never happen
---------------------
- A completion is in the log without an event that it names. Both are appended in one batch of Kafka, or the
  events are acknowledged before. Only with asynchronous uploads the events follow, and the commit waits.
- A completion is repeated with other content. What may be in the log is sent again as it was, with the same
  id, or never again.
- An event has files of two tables, or a writer has one attempt for two. So the name of a writer contains that
  of a further table.
- A file is deleted whose event may be in the log. After an error of a publication the outcome is unknown,
  and files stay.
- A region counts as idle while rows are written for it. The log has the beginning of a checkpoint after
  every heartbeat that may have stated idle, and before the first row. `spark/heartbeats.py` states idle, and
  `spark/batch.py` takes it back; in plain Python `driver.py` does both.
- A driver writes for an incarnation that has ended. A doubt, such as a notification about another
  incarnation, decides nothing itself; it makes the driver ask the coordinator before the next checkpoint.
- A file or a completion depends on a heartbeat, on a notification, or on a thread in the background.
- A driver waits for the coordinator on its own account, except for the answer to its registration, and for
  commits if its options limit what is not committed. Both waits are in `registration.py`.

Which call waits for what
-------------------------
- A writer waits for the storage of the table, and for Kafka's acknowledgement of its event. In the process of
  its driver, `complete` waits for that. With asynchronous uploads it waits for the disk of its machine alone,
  and for room in the spool.
- `start` waits for the coordinator: for the answer to the registration.
- `begin` waits for Kafka if the region may count as idle, and for commits if the options limit what is not
  committed.
- `complete`, `give_up`, `decline` and `close` wait for Kafka's acknowledgement. Only `await_commit` waits for
  the commit itself, and so does `Job.finish`.
- After a doubt, the next call also asks the coordinator if the driver was replaced. Without an answer within
  5 seconds it continues.

The way of one checkpoint (plain Python)
----------------------------------------
1. `RegionDriver.start` (`driver.py`) begins to read notifications (`commit_feed.py`), then registers a new
   incarnation at the committed position (`driver_state.py`, `registration.py`), and returns that position.
2. `begin` compares the limits, and takes "idle" back. It returns an `OpenCheckpoint`, which is data.
3. Workers write rows (`writer.py`). The files go to the table's storage, or to a spool (`upload/`). The
   events go to Kafka (`publisher.py`), or with the result to the driver, if the worker is its process. The
   worker returns a `WriterResult`, which is data, too.
4. `complete` publishes the completion. From its acknowledgement on, no crash loses the checkpoint.
5. `DriverState` (`driver_state.py`) learns from the notifications which checkpoints are committed.

A batch job (`job.py`) is an incarnation with one checkpoint, and its source offsets are the ids of jobs. A
query of Spark (`spark/`) does the same in several processes, with its state in Spark's checkpoint location.
Both share the region and its events (`region.py`), the options (`options.py`), the writer, the publisher,
the questions to the coordinator, and the wait for commits.

Where to start reading
----------------------
`region.py` has the names of everything. Then read `driver.py`, which is the whole protocol in one process,
and `spark/__init__.py`.

Each name of this package is loaded when it is first used, so that a plain Python driver loads nothing of
Spark, and no pyarrow before it writes.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from sluicegate.lakes.registry import install_line

if TYPE_CHECKING:
    from sluicegate.writer_hooks.commit_feed import RegionOutcome as RegionOutcome
    from sluicegate.writer_hooks.driver import RegionDriver as RegionDriver
    from sluicegate.writer_hooks.driver_state import CommittedCheckpoint as CommittedCheckpoint
    from sluicegate.writer_hooks.errors import BadCheckpointLocation as BadCheckpointLocation
    from sluicegate.writer_hooks.errors import BadListenerState as BadListenerState
    from sluicegate.writer_hooks.errors import BadOption as BadOption
    from sluicegate.writer_hooks.errors import BatchUnfinished as BatchUnfinished
    from sluicegate.writer_hooks.errors import EventTooLarge as EventTooLarge
    from sluicegate.writer_hooks.errors import HookError as HookError
    from sluicegate.writer_hooks.errors import LocationUnavailable as LocationUnavailable
    from sluicegate.writer_hooks.errors import NotOurs as NotOurs
    from sluicegate.writer_hooks.errors import PreflightFailed as PreflightFailed
    from sluicegate.writer_hooks.errors import PublishFailed as PublishFailed
    from sluicegate.writer_hooks.errors import RegionReplaced as RegionReplaced
    from sluicegate.writer_hooks.errors import RegionStalled as RegionStalled
    from sluicegate.writer_hooks.errors import RegistrationRefused as RegistrationRefused
    from sluicegate.writer_hooks.errors import RegistrationUnanswered as RegistrationUnanswered
    from sluicegate.writer_hooks.errors import SourceOffsetsUnknown as SourceOffsetsUnknown
    from sluicegate.writer_hooks.errors import SpoolUnusable as SpoolUnusable
    from sluicegate.writer_hooks.errors import TooManyUncommitted as TooManyUncommitted
    from sluicegate.writer_hooks.errors import TopicMissing as TopicMissing
    from sluicegate.writer_hooks.errors import UploadGivenUp as UploadGivenUp
    from sluicegate.writer_hooks.job import Job as Job
    from sluicegate.writer_hooks.job import prepare_jobs as prepare_jobs
    from sluicegate.writer_hooks.spark.foreach import ForeachBatch as ForeachBatch
    from sluicegate.writer_hooks.spark.incarnation import close_region as close_region
    from sluicegate.writer_hooks.spark.incarnation import start_incarnation as start_incarnation
    from sluicegate.writer_hooks.spark.preflight import preflight as preflight
    from sluicegate.writer_hooks.spark.session import attach as attach
    from sluicegate.writer_hooks.writer import OpenCheckpoint as OpenCheckpoint
    from sluicegate.writer_hooks.writer import Writer as Writer
    from sluicegate.writer_hooks.writer import WriterResult as WriterResult
    from sluicegate.writer_hooks.writer import Written as Written

_HOMES: Final = {
    "ForeachBatch": "spark.foreach",
    "Job": "job",
    "OpenCheckpoint": "writer",
    "CommittedCheckpoint": "driver_state",
    "RegionDriver": "driver",
    "RegionOutcome": "commit_feed",
    "Writer": "writer",
    "WriterResult": "writer",
    "Written": "writer",
    "attach": "spark.session",
    "close_region": "spark.incarnation",
    "preflight": "spark.preflight",
    "prepare_jobs": "job",
    "start_incarnation": "spark.incarnation",
}
"""Modules of the names; all others are in `errors`."""


if not TYPE_CHECKING:  # a type checker would take any name

    def __getattr__(name: str) -> Any:
        home = _HOMES.get(name, "errors")
        try:
            found = getattr(import_module(f"{__name__}.{home}"), name, None)
        except ModuleNotFoundError as error:
            if (error.name or "sluicegate").partition(".")[0] == "sluicegate":
                raise
            line = install_line(*(["spark"] if home.startswith("spark.") else []))
            raise ModuleNotFoundError(
                f"sluicegate.writer_hooks.{name} needs the package {error.name}, which is not installed in "
                f"this environment; install what a writing job needs with: {line}",
                name=error.name,
            ) from None
        if found is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
