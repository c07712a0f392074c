"""The shell around the core: partitions, their streams, and the effects of the core as calls.

Why it exists
-------------
The core (`coordinator/core`) decides, and does nothing. This package brings it the records of the log and
the results of its effects, and runs the effects: append to Kafka, ask and publish to the table, write the
state record and the view. It has the clock, the event loop, the threads and the failures. It decides
nothing about commits, but that limits of size narrow a proposal (`files.py`).

The way of one record, and of the commit that it causes:

    service ─► partition.PartitionRunner        the records of one assigned partition, in order
                 bytes become a LogRecord, or a dead letter (letters.py): events/signing.py checks
                 the signature, events/codec.py reads the attributes and the body. The body of a
                 files.written is read later, at its check
                 reload, rate_limit             streams of a reload; streams over their limit
               runner.StreamRunner.deliver ─►   one stream: the record goes to the core once
                 core StreamMachine.step        folds the record
               runner ─► core poll(now)         the effects that may start now
                 files, prechecks, table.check  before the decision: files exist (lakes/committer.py), sizes
                                                and schemas fit. A malformed body becomes a dead letter
                                                here, so one that no cut would take gets no letter. What
                                                passed an early check is not looked for again for ten
                                                minutes (prechecks.py), and after the check before the
                                                decision not until that one is made (core/proposal.py)
                 appends                        cut.decided; read back like any other record
                 table.ask, table.publish       calls of the committer (lakes/), in a thread of the pool.
                                                After a conflict core/commit.py asks again, without a
                                                maximum
                 appends                        cut.committed; read back
                 appends, outcomes, telemetry   state record, notification (after the listeners' records),
                                                view, logs, metrics, spans
               runner ─► core finished(...)     each answer, also a failure

The rest: `state_records.py` has the keys and values of state records, and `records.py` reads them at an
assignment. `account.py` has the positions that a table keeps with each commit. `continuity.py` checks that
the log continues the records. `reload.py` lets streams join and leave while the partition is read,
`rate_limit.py` those over their limit. `retention.py` deletes records that no stream needs. `views.py`
writes the views of streams to the state store. `summary.py` counts what a commit contains, for people and
listeners. `files.py` has the bodies of a stream's events, and narrows a cut to what fits into one commit.
`links.py` has the clients that all streams share. `other_groups.py` notices a second group of coordinators.
`failpoints.py` has the places at which tests stop an effect.

What may never happen
---------------------
* A record is delivered twice, or out of order, or one is skipped. The partition counts offsets; a gap that
  Kafka's own markers do not explain ends the assignment. Only an operator's `stream skip` leaves a record
  out, and the record of that order is in the log.
* An effect's failure is taken for its outcome. A call that raised, timed out or was cancelled gives
  `Failed` or an unknown outcome to the core, which asks again. A publish is repeated here in one case: it was
  refused, and so had no effect, because the table has changed since an early check (`StreamTable`).
* Something blocks the event loop. Calls of tables run in threads, with one call of a table at a time.
  Bodies of events are not parsed on arrival; long loops give way to others.
* One stream holds up another one. A slow table, an absent store or a flood of events delays its own stream.
  Streams of one partition share its order of records and nothing else.
* A dead letter is lost or precedes its event. Letters are sent before the offset of their event is
  released.

Cancellation is normal: a rebalance takes a partition away at any moment, in the middle of any call.
Whatever was in flight then is found out by the next owner, from the log and the table.

Where to start
--------------
`runner.py`: `StreamRunner.deliver`, then `pump` and `_run`. Then `table.py`, which is the whole way from an
effect of the core to a committer. `partition.py` last: it has the edge cases of reading.
"""
