"""The state machine of a stream: pure, synchronous, deterministic.

Why it exists
-------------
Writers write data files and publish small events about them. Somebody has to decide which of these files
become visible together, do it once, and be able to die at any moment. Here, the decision is not a lock and
not a row of a database: it is a record in the same log (one partition of Kafka) in which the events are.
The log orders everything. Each reader of it folds the same records into the same `LogState`, so each reader
judges a decision in the same way.

The data flows in one direction, and each step has one file:

    record ─► replica ─► state, log            the fold: what the log says, and nothing else
              registration, commands, cuts     the rules for each kind of record; the list above `Command` in
                                               events/models.py says what a new order needs
              savepoints, undo                 orders that stay open; what a revert or a withdrawal puts back
    time   ─► machine ─► proposal              the next cut: chosen, checked, appended as cut.decided
              machine ─► commit                an unresolved decision: ask, publish, append the outcome
                         table                 what the table has proven, and what contradicts it
              machine ─► activity              the drivers' newest events, and silent drivers
              machine ─► outbox                what follows a record: state record, notification, view, offset
    machine.poll(now) ─► effects               requests to the shell, as data
    effects' results  ─► machine.finished(...) answers of the shell, as data
    conditions                                 the one answer to: why does this stream not progress?

A *cut* is a position for each region. `cut.decided` moves the positions at its own offset, for every
reader. The files of the cut are those of the checkpoints between the old and the new positions, so the
content of a commit is a function of the log up to its decision. `cut.committed` says that the table has
them; `cut.reverted` takes the decision back. Between the two, the decision is *unresolved*, and no further
one is valid.

Three kinds of state, each with one writer
-------------------------------------------
`LogState` (state.py, log.py) changes by records alone. It is the only state that validity depends on: two
coordinators that read the same record reach the same verdict. `TableProgress` (table.py) is the
table as last seen; answers of the table change it. Work in hand (machine.py, proposal.py, commit.py,
activity.py, outbox.py) is timers, candidates and effects in flight. A crash loses it, and `poll` makes it
again. A `StateRecord` saves the first two, so that a restart does not read the log from its beginning. It is
a copy: a lost or an old one costs time, never rows.

The words for regions
---------------------
*Idle*: the newest heartbeat says so (`heartbeat` in replica.py; the status shows this), and nothing is
pending (`Log.is_idle`; cuts ask this). *Active*: in the assignment, and not ended. *Expected*: active, and
not idle (`Log.expected`). *Lagging*: expected, with nothing sealed after its position. *Absent*: lagging,
with a known answer: it cannot move soon (`RegionState.is_absent`), is silent, or its time has passed
(`Candidate.align`). A region *falls back* in a cut that does not move it. *Sealed*: completed, complete and
contiguous. *Taken*: part of the unresolved decision.

Answers of the table
--------------------
To a question about the unresolved decision, or about the next one while there is none (`_head_asked`):

    Found            its outcome is appended; of the next one: it is another coordinator's, the log is read
    Absent(head)     published on exactly this head; of the next one: the head is proven, decisions may follow
    OtherDigest      a revert of it, or a stall
    Ahead            the log is read to a new end; a stall if that does not explain it
    Unproven         a stall; the head that is known has expired (`expired`), or is not in the history
    TableReplaced    a stall of the whole stream, not of its commits alone

Repetitions after a crash
-------------------------
The notifications of the newest record are sent again, under the same ids. Answers to registrations wait until
the log is read, so they come after the commits then. While the stream stalls, each answer is that stall.

What may never happen
---------------------
* A decision is published without the question whether the table has it. Every commit begins with *ask*.
  Only an answer *absent*, proven on a head, allows a *publish*, and only on exactly that head. After a
  conflict, a time-out or any other outcome that is not known, the coordinator asks again. An unknown
  outcome is never taken for a failure.
* Time makes a decision valid or void. Time decides when a cut is proposed: after `alignment_timeout`,
  regions without a sealed checkpoint fall back. Whether the proposed cut is valid depends on the log alone,
  at its own offset.
* Something old decides. A coordinator decides only after it has read the log up to an end that was fetched
  after its timers expired (`StreamMachine._require_end`). A coordinator that lost its partition may still
  append decisions; they follow the records of its successor, name an older decision than the newest, and
  are void for every reader.
* An effect is lost. `poll` hands out every effect that the state asks for, until its result arrives; it
  keeps no list of what it once handed out. Effects therefore repeat after a crash, and each is safe to
  repeat.
* A problem is settled by a guess. A table that contradicts the log stops the stream with a code, and an
  operator's command, as a record of the log, resolves it (commands.py).

The core raises nothing for bad input. An event without effect is normal: it is a duplicate, late, or from a
writer that was replaced. It gets a reason (`Applied.ignored`), which the shell logs and counts.

Where to start
--------------
Read `machine.py` from `StreamMachine.step` to `poll`, then `cuts.py` (choice and validity by the same
functions), then `commit.py`. The golden cases in `tests/golden/cases` are scripts of records and answers
with every effect and state; `basics/crash_at_each_step_of_a_commit.txt` is the best first one. The rules
for writers are in `docs/writers/`.

The core imports no event loop, clock, randomness or I/O; import-linter checks that. Times are arguments, in
milliseconds since the Unix epoch. The ideas of effects as data, of `poll`, and of time as an input are
those of etcd's raft library and of sans-I/O protocol implementations."""
