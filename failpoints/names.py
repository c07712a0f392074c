"""Names of all failpoints.

A test reaches every one of them, so no name here is unused.
"""

from enum import StrEnum


class Failpoint(StrEnum):
    """A place between two effects. At `.before` nothing of the effect is done, at `.after` all of it is."""

    # The coordinator's effects (coordinator/stream/runner.py).
    INSPECT_TABLE_BEFORE = "inspect-table.before"
    INSPECT_TABLE_AFTER = "inspect-table.after"
    FETCH_END_BEFORE = "fetch-end.before"
    FETCH_END_AFTER = "fetch-end.after"
    CHECK_FILES_BEFORE = "check-files.before"
    CHECK_FILES_AFTER = "check-files.after"
    APPEND_POLICY_BEFORE = "append-policy.before"
    APPEND_POLICY_AFTER = "append-policy.after"
    APPEND_DECISION_BEFORE = "append-decision.before"
    APPEND_DECISION_AFTER = "append-decision.after"
    APPEND_ABANDONED_BEFORE = "append-abandoned.before"
    APPEND_ABANDONED_AFTER = "append-abandoned.after"
    APPEND_COMMITTED_BEFORE = "append-committed.before"
    APPEND_COMMITTED_AFTER = "append-committed.after"
    APPEND_REVERTED_BEFORE = "append-reverted.before"
    APPEND_REVERTED_AFTER = "append-reverted.after"
    APPEND_HEARTBEAT_BEFORE = "append-heartbeat.before"
    """Before the coordinator states that an idle region is silent."""
    APPEND_HEARTBEAT_AFTER = "append-heartbeat.after"
    ASK_BEFORE = "ask.before"
    ASK_AFTER = "ask.after"
    PUBLISH_BEFORE = "publish.before"
    PUBLISH_AFTER = "publish.after"
    WRITE_RECORD_BEFORE = "write-record.before"
    WRITE_RECORD_AFTER = "write-record.after"
    ANNOUNCE_BEFORE = "announce.before"
    ANNOUNCE_AFTER = "announce.after"
    WRITE_VIEW_BEFORE = "write-view.before"
    WRITE_VIEW_AFTER = "write-view.after"
    RELEASE_OFFSETS_BEFORE = "release-offsets.before"
    RELEASE_OFFSETS_AFTER = "release-offsets.after"

    DELETE_RECORDS_BEFORE = "delete-records.before"
    """The base records are durable. The next step deletes records of the log."""
    DELETE_RECORDS_AFTER = "delete-records.after"

    # An assignment of a partition, from its beginning to its end (coordinator/stream, runtime, membership).
    ASSIGNED = "assigned"
    READ_RECORDS_BEFORE = "read-records.before"
    READ_RECORDS_AFTER = "read-records.after"
    TAKE_OVER_BEFORE = "take-over.before"
    TAKE_OVER_AFTER = "take-over.after"
    BATCH_BEFORE = "batch.before"
    BATCH_AFTER = "batch.after"
    REVOKED_BEFORE = "revoked.before"
    REVOKED_AFTER = "revoked.after"
    LAST_RECORD_BEFORE = "last-record.before"
    LAST_RECORD_AFTER = "last-record.after"
    EVICT_BEFORE = "evict.before"
    """Before a dead predecessor is removed from the consumer group."""
    EVICT_AFTER = "evict.after"

    # The publication to a table (lakes/), in its order. A format hits the places of the steps that it has.
    LAKE_MANIFEST_WRITTEN = "lake.manifest-written"
    """Hit for each file of the commit's metadata, before all of them are durable."""
    LAKE_MANIFESTS_DURABLE = "lake.manifests-durable"
    LAKE_PUT_BEFORE = "lake.put.before"
    """The next step makes the commit, or a new schema, visible, if nobody else was faster."""
    LAKE_PUT_AFTER = "lake.put.after"
    LAKE_PUT_DURABLE = "lake.put-durable"
    LAKE_HINT_BEFORE = "lake.hint.before"
    LAKE_HINT_AFTER = "lake.hint.after"
    LAKE_DISCARD_BEFORE = "lake.discard.before"
    """Another writer published first. The next step deletes the unreferenced metadata."""
    LAKE_DISCARD_AFTER = "lake.discard.after"

    # Steps that only Paimon has (lakes/paimon).
    PAIMON_WITHDRAW_BEFORE = "paimon.withdraw.before"
    """The snapshot's number is one that the history has already expired. The next step deletes it."""
    PAIMON_WITHDRAW_AFTER = "paimon.withdraw.after"

    # The writer hooks in a Spark job (writer_hooks/): tasks, and the worker beside the driver.
    HOOK_FILES_WRITTEN_BEFORE = "hook.files-written.before"
    HOOK_FILES_WRITTEN_AFTER = "hook.files-written.after"
    HOOK_PROBE_BEFORE = "hook.probe.before"
    HOOK_PROBE_AFTER = "hook.probe.after"
    HOOK_MARKER_BEFORE = "hook.marker.before"
    """The next step writes the incarnation to the checkpoint location."""
    HOOK_MARKER_AFTER = "hook.marker.after"
    HOOK_REGISTRATION_BEFORE = "hook.registration.before"
    HOOK_REGISTRATION_AFTER = "hook.registration.after"
    """The registration is in the log, and its answer was not read."""
    HOOK_ANSWER_AFTER = "hook.answer.after"
    HOOK_COMPLETION_BEFORE = "hook.completion.before"
    HOOK_COMPLETION_AFTER = "hook.completion.after"

    # The asynchronous upload (writer_hooks/upload): a task, and the uploader of its machine.
    UPLOAD_ENTRY_BEFORE = "upload.entry.before"
    """The files of a task are durable on its machine. The next step hands them to the uploader."""
    UPLOAD_ENTRY_AFTER = "upload.entry.after"
    UPLOAD_PUT_BEFORE = "upload.put.before"
    UPLOAD_PUT_AFTER = "upload.put.after"
    UPLOAD_PUBLISH_BEFORE = "upload.publish.before"
    """All files of an entry are durable in the table's storage. The next step publishes its events."""
    UPLOAD_PUBLISH_AFTER = "upload.publish.after"
    UPLOAD_REMOVED = "upload.removed"
    """The entry is removed, and its local files are not."""
    UPLOAD_LOST_BEFORE = "upload.lost.before"
    """The next step reports the files of an entry as lost."""
    UPLOAD_LOST_AFTER = "upload.lost.after"

    # The records of listeners (coordinator/listeners).
    LISTENER_RECORD_BEFORE = "listener-record.before"
    """The next step writes the place and the state of a listener, for the first time too."""
    LISTENER_RECORD_AFTER = "listener-record.after"
