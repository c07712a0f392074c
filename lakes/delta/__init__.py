"""Delta Lake: append tables on file systems and in object stores.

The table is its folder; there is no catalog. `_delta_log/<n>.json` is version n: one JSON action a line.
The state of the table is the sum of all actions. Checkpoints in the same folder repeat that state, so that
readers need not start at version 0, and clean-up may delete the versions before a checkpoint.

One commit
----------

The writer half makes the line that adds a file, with the statistics of its footer (`entries`, `writer`).
The committer half checks that line and copies it. A commit is a single file: the actions of the commit
first, then the lines of all data files, kept compressed until the put (`versions`). `_delta_log/<n+1>.json`
is put if that name is free. So there is nothing to discard after a failure.

Before the put, `Log.require_base` proves that a reader can reach the head. After the put, `Log.follows`
proves that the head is still there and no newer checkpoint is: clean-up may have freed the number of an old
version while this process stood still. False does not prove the contrary, so the outcome is unknown then.

The committer keeps a `State`: protocol, metadata and transactions, without data files. A new version costs
one read. The stamp of a file spares the read if nothing has changed.

Decisions in the table
----------------------

Each commit has transactions (`versions`, "Decisions"): the decision under the commit user, as Delta's own
sinks write it, and a mark with digest, version and table in parts. Transactions are part of the state, so
checkpoints keep them after clean-up, and a rollback takes them back. So a mark in the head proves that its
commit is in the history, even if its version has expired.

Delta takes a transaction of any number, also a lower one. The committer itself therefore refuses a decision
that is not above the mark. A clone of the table has its transactions too: the mark names the table.

Version 0 creates the table. It is no snapshot; the first one is version 1.

Schemas
-------

Delta has no schema ids. The id of a schema is a digest of its content (`schema`). Files of an older schema
are taken if the newest one can read them: columns were added, or widened with the feature for that
(`checks`). Older schemas are read from the log, or from version 0 of a table that was made for a rebuild.

Scope
-----

`features` is an allowlist of table features and properties. A table with anything else is refused, since an
append would break it without an error. Row tracking and commit timestamps are supported: each commit
assigns row ids and a rising time.

The delta library is not loaded by the service. It makes checkpoints in a process of its own
(`checkpointing`), every 100 versions by default. A failed checkpoint slows reads of the table, and is only
logged.

What may never happen
---------------------

- A line that is not valid reaches the log: the table would be unreadable for everybody.
- A bound of the statistics is narrower than the values: readers would skip rows. A bound may be wider, and
  is left out where readers could take it for narrower.
- The path of a file has two spellings in the log: a file would count twice, or look like an orphan.
- A partition value has a text that readers parse in different ways (`schema.can_partition`).

Where to start: `committer`, then `log`, then `versions`.
"""
