"""Adapters of table formats: a writer half and a committer half for each format.

A lake table is a folder of data files, with metadata that names some of them. A snapshot is one state of
that metadata. Readers see exactly the files of the newest snapshot. So rows are added in two steps: write
data files, which no reader sees yet, then publish a snapshot that names them. Here, many jobs do the first
step, and one coordinator does the second step for all of them.

Parts of an adapter
-------------------

An adapter (`port.Adapter`) stands for one format. Its halves run in different processes. Nothing but events
passes between them.

- The writer half (`port.FileWriter`) runs in a writing job, once for each attempt of a task. It makes rows
  fit the schema of the table and writes data files durably. It describes each file: path, size, rows,
  partition, and the record that the table's metadata will contain. It never publishes anything.
- The committer half (`port.Committer`) runs in the coordinator, once for each stream. It checks described
  files when their event arrives, and publishes them when a decision includes them. It copies the records as
  bytes, so it can lose no field of them. It reads no rows. Only a file without a record is opened, at its
  footer.
- All other access is a capability (`capabilities`): history, orphans, copies, tags, partitions, new
  columns. A format has the capabilities that it can keep. A command that needs another one is refused.

One commit
----------

A decision of a stream has an id and a digest of its content. Ids are consecutive. Each commit leaves both
in the table, beside the name of its commit user.

1. Ask: is the decision in the table? The committer reads the history from the head back to the snapshot
   that the stream recorded last. The rules of the answer are the same for all formats, and stand in
   `history`.
2. Publish, only if the decision is proven absent. The new snapshot follows exactly the head that was asked,
   or it does not appear. Each format has one atomic step for this: Paimon and Delta put a file whose name
   is free, Iceberg changes the entry of a catalog.
3. The outcome is done (Published), certainly not done (Refused), or unknown (OutcomeUnknown). A refusal says
   if its cause may pass, such as another writer that was first. After an unknown outcome, or a refusal that
   may pass, the coordinator asks again.

A committer makes one attempt, and repeats no step but one: a put-if-absent in an object store is sent up to
four times. It never replaces a file, and a file with the same content is that of an earlier try. The
coordinator publishes a second time on the same head in one case: checks were outdated, so it was refused.

This is safe although a process may crash, or stand still for an hour, at any point. A successor asks the
table. A late step of the predecessor needs a name or a version that is taken by then, or the format proves
after the step whether it counts.

What may never happen
---------------------

- A decision is in a table twice. Absence is proven, never assumed. Without a proof the stream stalls.
- An outcome is guessed. A failure before the atomic step is Refused. A failure in it or after it is
  OutcomeUnknown, unless the answer of the storage excludes one of the two cases.
- A file is deleted that a snapshot may refer to, now or later. After an unknown outcome no data file and no
  manifest is deleted.
- A snapshot is visible before all that it refers to is durable.
- A commit breaks a feature of the table. Each format checks the features of a table when it is opened, and
  before each commit. A table with a feature that an append does not respect is refused.
- A claim of an event is trusted. Events come from outside. Path, size, link, partition, schema, statistics
  and encoding of each file are checked, and no file may be there twice.
- The folder of a table is made again because it is missing. Its storage may not be mounted.
- An error contains a credential.

Layers, from the lowest one
---------------------------

- `storage` (port, with the sentences of its errors), `storage_local`, `storage_objects`, `storage_hdfs`,
  `spooled` (files that are uploaded later). `storages` opens the one of a location. `threads` keeps stuck
  calls apart.
- `port` and `capabilities`: protocols and data, without I/O. `registry` finds adapters by name.
- `history` and `committer`: what committers of all formats share.
- `file_options`, `arrow`, `parquet` and `new_columns`: what writers share. The last three need pyarrow. A
  coordinator loads them only for Paimon, whose library needs pyarrow too, and for files without a record.
- `footers` reads footers of unknown origin. `avro` splits and joins Avro files without decoding a record.
- `paimon`, `delta`, `iceberg`: the formats. `memory` is a format without I/O, for tests and the simulator.

The commit paths are written by hand, beside the libraries of the formats. They are 20 to 40 times faster
than these, and after each failure it is clear whether the snapshot can be visible. The libraries stay in
use for schemas, transforms and encodings.

Where to start
--------------

`port` first, then `history`, whose docstrings argue each rule. Then `delta/committer.py`, the shortest of
the committers: `ask`, `_publish`, `_taken` and `_settled` are one commit. tests/contracts/lakes states the
port as tests that run on every format.
"""

from sluicegate.lakes.port import Adapter, Committer, FileWriter, LakeError
from sluicegate.lakes.registry import adapter

__all__ = ["Adapter", "Committer", "FileWriter", "LakeError", "adapter"]
