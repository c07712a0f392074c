"""Runner of all regions of a stream in one Spark driver.

Why the parts exist
-------------------
One query reads all of its sources in step: if one partition is stuck, the whole stream is. The runner
divides a source into regions, and runs one query for each. A region that fails is restarted or reset alone,
while the other regions are committed. The hard part is a change of the division: each row has to be in
exactly one region, before and after it.

- `division.py`: the division as data, by a column, a folder or a partition of Kafka, and the source that is
  divided.
- `plans.py`: a plan is a division with a number, which is the number of the assignment in the protocol. It
  has everything that its queries need to start, and is written before one of them starts. For a source of
  files, it also seeds each new location with the files that earlier plans have committed.
- `offsets.py`: offsets of Kafka sources, and the partitions of their topics.
- `query.py`: the query of one region of a plan, with the settings of the runner.
- `supervision.py`: a thread for each query that starts it, follows it, restarts or resets it, and ends it.
- `change.py`: the change from one plan to the next one.
- `runner.py`: `RegionRunner`, which users call.

What may never happen
---------------------
- Two runners use one base location. A local base is locked; in a store, a second runner is the user's
  error, and the coordinator lets one of two queries of a region count.
- A plan changes after a query may have used it. It is only replaced by a plan with a higher number, and a
  number is never used twice.
- A region begins in the next plan before all regions of the old plan are committed up to their ends. The
  change waits for the final cut, and compares each committed position with the end of the location.
- A row is read in two plans, or in none. A Kafka source continues at the union of the offsets of all old
  regions, and a change is refused if two regions are at different offsets of one partition. A source of
  files continues with the files that no old location has committed.
- A reset takes a region away from another process. Before a reset the runner asks whose incarnation is
  live.
- A region is restarted for ever although no restart helps, such as after a wrong option.

The way of one batch
--------------------
The runner is not part of it: the query writes through the sink, as `spark/__init__.py` states. Afterwards
`RegionSupervisor` sees the progress of the query, and the feed of the runner brings the committed position.
A stall with the code `files-lost` has the region reset.

The way of a change
-------------------
`RegionRunner.start` compares the division with the newest plan. If they differ, `Change.run` finishes the
batches that are planned, closes the regions, waits for the final cut, reads where the sources are, and
writes the next plan. Until the plan is written, the old one is in force, and each step may be repeated
after a crash.

Where to start reading
----------------------
`division.py` and `plans.py` are data. Then read `runner.py` from `start`, and `supervision.py`.
"""

from sluicegate.writer_hooks.spark.regions.division import BaseInUse as BaseInUse
from sluicegate.writer_hooks.spark.regions.division import Division as Division
from sluicegate.writer_hooks.spark.regions.division import DivisionRefused as DivisionRefused
from sluicegate.writer_hooks.spark.regions.division import RegionsFailed as RegionsFailed
from sluicegate.writer_hooks.spark.regions.division import RunnerStopped as RunnerStopped
from sluicegate.writer_hooks.spark.regions.division import Source as Source
from sluicegate.writer_hooks.spark.regions.division import by_column as by_column
from sluicegate.writer_hooks.spark.regions.division import by_partition as by_partition
from sluicegate.writer_hooks.spark.regions.division import by_path as by_path
from sluicegate.writer_hooks.spark.regions.query import Backoff as Backoff
from sluicegate.writer_hooks.spark.regions.runner import RegionRunner as RegionRunner
from sluicegate.writer_hooks.spark.regions.supervision import RegionStatus as RegionStatus
from sluicegate.writer_hooks.spark.regions.supervision import State as State
