"""The log of a stream, read by commands and by the janitor: verify, repair, rebuild, orphans, adopt, audit.

Why it exists
-------------
The log has every decision and every outcome, and each table has its history. Whoever reads both can prove
what is missing, doubled or foreign, and can often make it right. All of these commands fold the log with
the core's own `Replica`, so none has rules of its own about what was valid.

    log         a stream's records and state records, without a consumer group
    reading     one pass: decisions in order, each once no later record can change it; windows of them
    decisions   pure: decisions with outcomes, the comparison with a table's history, orphan events
    tables      calls of a table, in a thread
    verify      what differs, and nothing is written
    repair      commits valid decisions that the table provably lacks
    rebuild     a new table from copies of the files, with the same commits
    orphans     files that no commit will include, and their deletion
    adoption    the state with which a stream continues from its table, after a loss of Kafka's topics
    letters     dead letters: read, send again, mark as done
    audit       who ordered what
    conformance what a foreign writer's events violate of the contract

What may never happen
---------------------
* A commit is made twice. Repair asks and publishes like a coordinator, under the same ids and digests, on
  exactly the head where its answer was proven.
* A file is deleted that may be referenced. `orphans` demands an orphan event, a table that does not have
  the file, an age, and the same again immediately before the deletion.
* A doubtful log is taken for complete. Records that are missing, unsigned or of a newer version end a
  command with what it has found so far and the reason."""
