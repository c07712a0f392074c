"""Apache Iceberg: append tables of format versions 2 and 3, in SQL and REST catalogs and in AWS Glue.

A table is an entry of a catalog. The state of the table is one metadata file, with all schemas, partition
specs, properties and snapshots. A snapshot names a manifest list, its lines name manifests, and these have
one record for each data file. All of these files never change. Locations are plain text, compared character
by character (`files`).

One commit
----------

The writer half encodes the `data_file` record of each file without knowledge of the commit (`layout`). The
committer half checks the bytes of the record (`entries`), puts the fields of the commit before them, and
writes manifests, a manifest list and the new metadata. The change of the catalog entry is the commit. It
has the condition that the table is still as it was read.

- `sql` and `glue` keep the location of the metadata file (`catalog.PointerCatalog`). A commit writes a
  metadata file, then swaps its location for the former one.
- `rest` sends the snapshot with its requirements, and the server writes the metadata. The request is never
  repeated: a server may have carried it out although its answer was lost. A proxy may send it twice, so the
  files of a refused change stay until another snapshot is on the head.

Three outcomes of `Catalog.commit` decide what happens to the new files. False: another change came first,
and the files are discarded. LakeUnavailable: certainly nothing is visible, so they are discarded too.
Uncertain: nothing is deleted.

Not every change makes a snapshot. A new schema, a tag or a property refuses the commit although the head is
the same; the coordinator asks again.

History and marks
-----------------

The position of a snapshot is its sequence number, its identity is the snapshot id. Snapshots name their
parents, and the history is that of one branch (`ancestry`). Tools that expire a parent sometimes remove its
name from the child. So a snapshot without a parent counts as the first one only if all lower sequence
numbers are there.

Each commit sets a property of the table with its decision, digest and snapshot. The property survives the
expiry of the snapshot, and also a rollback of the branch. So it counts only if its snapshot is in the
history or has expired (`history.Marker`). A clone has the property too: it names the table.

A cherry-picked snapshot has the files of its source, so it counts as the same commit.

Proof that the storage is there
-------------------------------

The entry of a catalog stays while the files are away. So `require_base` looks at the metadata file, the
manifest list and the manifests of the head before each commit. An adapter that is opened also proves that
this process reaches the storage that the catalog means, and not another bucket of the same name.

Manifests
---------

`manifests` composes new manifests from encoded records, and merges small ones of ours. A manifest of
another writer is never rewritten. Values and NaN of one partition field are in different manifests, because
readers disagree about bounds beside NaN. Tables of version 3 get row ids with each commit.

What may never happen
---------------------

- Metadata that this release does not know is lost. Unknown fields of the metadata file stay as they are; a
  manifest list with unknown fields refuses the commit.
- A metric hides a row. Bounds are never narrower than the values, and counts must fit each other
  (`entries`).
- A record has two encodings: `entries` proves the canonical one without decoding, and decodes all others.
- A retry of the library sends a change twice. Its connection is used, its retries are not.

pyiceberg does schemas, transforms, conversions and connections. It does not load or commit tables.

Where to start: `committer`, then `catalog`, then `ancestry`. `table` has the features that are refused.
"""
