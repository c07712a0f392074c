"""Hooks of queries of Spark: each batch of a query is a checkpoint of its region.

Why the parts exist
-------------------
Spark calls a sink in several processes, and most of them end before the query does. Tasks run in
executors. The data source is called before each batch in one Python worker on the driver's machine, and
after it in another one. ForeachBatch runs in the driver itself. Queries may be idle for hours, and then
nobody calls the sink. So the state of a query is in three places:

- The checkpoint location (`checkpoint.py`, `location.py`) is durable. Spark plans and completes batches
  there; this package adds the marker of the incarnation. Correctness depends on this place alone.
- The registry (`registry.py`) is a folder of the driver's machine. Workers and listener exchange there
  which run is registered, what is committed, and if a heartbeat may have stated idle. Its loss loses no
  data.
- The listener (`listener.py`) sees starts, ends and pauses of queries. `heartbeats.py` makes heartbeats and
  closings of them, in a thread.

There are two ways to write, with the same events. `source.py` is the data source of Spark 4.1 and later.
`foreach.py` is the function of `foreachBatch` for every release; it can write several streams from one
query.

What may never happen
---------------------
- Two ranges of the source have one batch number. A digest of the range (`checkpoint.py`) is part of each
  completion; the coordinator stalls a region whose completed batch has another digest than before.
- A location is marked for a region that has a position already, or numbering of another query is continued.
  `incarnation.py` asks first, which changes nothing; then it marks the location; then it registers. After a
  crash the steps that follow the marker are repeated, with the same incarnation and the same base.
- A run uses an incarnation that it did not begin with. A reset writes another marker, and the run fails.
- A batch is completed without the results of all its tasks, or with two results of one partition.
- A function of foreachBatch leaves a batch out, or writes one twice, and nobody sees it.
- PySpark or py4j is imported by a module that has to say what to install.

The way of one batch
--------------------
1. Spark plans the batch in its offset log, and calls the sink: `SluicegateSource.streamWriter`
   (`source.py`) or `ForeachBatch.__call__` (`foreach.py`).
2. `batch.py` lets it begin. `require_registered` looks into `registry.py`. The first batch of a run
   registers (`incarnation.py`, `../registration.py`); a batch after a pause publishes its beginning.
   `UncommittedLimit` waits for commits if the options say so. Only ForeachBatch compares the begin of the
   batch with the end of the one before (`require_follows`), and claims the call (`Calls`).
3. In executors, `write_task` (`batch.py`) writes rows to files (`../writer.py`), and hands the events over
   (`../upload/delivery.py`). Small events travel to the driver in the results of the tasks.
4. `complete_batch` (`batch.py`) reads the source range (`checkpoint.py`, `location.py`), and publishes the
   events of the winning attempts with the completion (`../publisher.py`).
5. Spark completes the batch in its commit log. If the process dies before that, Spark repeats the batch:
   the same number, the same range, and files and events of another attempt. The first completion counts.

Names and events come from `../region.py`, and options from `../options.py`.

Where to start reading
----------------------
`batch.py`, then `foreach.py`. `incarnation.py` is the start and the end of a query. `reset.py` sets a
location back to the committed position. `session.py` has `attach`, and `preflight.py` the checks before a
query starts. The package `regions` runs one query for each region of a stream.
"""
