"""Apache Paimon: append tables, and tables with keys, on file systems and in object stores.

The table is its folder; there is no catalog. These files matter to a commit:

- `schema/schema-<n>`: one version of the schema. The digest of schema 0 is the identity of the table.
- `snapshot/snapshot-<n>`: one snapshot, as JSON. Numbers rise by one. `snapshot/LATEST` is only a hint.
- `manifest/...`: manifest lists and manifests. A manifest has one entry for each data file. A snapshot
  names two lists: the base list has all manifests of the snapshot before, the delta list has those of this
  commit.
- `<partition>/bucket-<b>/...`: data files.

Files of all four kinds never change. Only expiry, compaction and rollbacks of the table's owner delete
them.

One commit
----------

The writer half encodes the manifest entry of each file, and events carry it. The committer half checks
entries as bytes (`entries`), joins them into new manifests without decoding (`manifests`), and merges small
manifests of the head. Then `Storage.put_after` writes manifests and lists, makes them durable, and puts
`snapshot-<n+1>` if that name is free. This put is the commit.

A put that fails before it can be visible discards its manifests. After an uncertain put nothing is deleted.
If the name was taken, the file there is read: it may be this same commit, whose acknowledgement was lost.

Why a put that succeeded is not enough
--------------------------------------

A free number may be a number that was used before: expiry or a rollback deleted its snapshot while this
process stood still. Such a snapshot is in no history, and no reader sees its rows. So after each put
`Snapshots.follows` proves the position:

- The predecessor is still there: expiry begins with the oldest snapshot, so the number was never used.
- The predecessor is gone: the next snapshot must have been made on this one, shown by its manifests.
- Neither holds: the outcome is unknown. A snapshot that provably follows nothing is withdrawn, because no
  reader looks at its position.

A snapshot does not name its parent. Equal numbers prove nothing, and equal row counts may be a coincidence.
`made_on` compares the sets of files instead. A stray snapshot below an expired history is found this way,
and left out of the answers (`Ancestry`).

Paimon has no place for a mark that survives the expiry of its snapshot. If snapshots expire before the
coordinator has asked, absence cannot be proven and the stream stalls.

Scope
-----

Append tables, and tables with keys in fixed buckets. `table.out_of_scope` and `keys` name the options that
are refused. `upserts` gives rows with keys their numbers and kinds, and `lakes/sequence.py` says where the
numbers come from. Files without metadata are taken unless the table has fixed buckets: no footer proves a
bucket. Tables with fixed buckets make all writers one region, because all of them write to the same buckets.

pypaimon does schemas, paths, row encodings and data files. An import of its table class takes seconds, so
only `writer` does that. `table.SchemaTable` serves commits. `data_files` corrects the library's bounds, by
which readers would miss NaN, one of the two zeros, or nanoseconds.

What may never happen
---------------------

- A manifest list with a field that this release does not know is rewritten: the field would be lost. The
  commit is refused.
- A list that is shorter than the snapshot states is taken for whole: rows would be lost.
- A manifest with deletions is merged: the order of entries determines the effect of a deletion.
- A file of a table with keys states fewer deletions than it has: deleted rows would come back.
- Statistics that pypaimon cannot decode reach a manifest: the table would be unreadable for everybody.

Where to start: `committer`, then `snapshots` with `follows`, then `manifests`.
"""
