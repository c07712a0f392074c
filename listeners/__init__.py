"""Types of listeners: work that follows a commit, each with a state and a backlog of its own.

`port.py` is what a listener implements, and how types are found (entry points; others can add theirs).
`webhook.py` sends each outcome to a URL, `tags.py` tags the cut of each period and each savepoint,
`mark_done/` marks partitions that are complete, `openlineage/` reports each commit as a run of a job.
`intervals.py` has the calendar that they share.

A listener never decides about a commit, and cannot delay one. Its `apply` and `due` are pure, so a
repetition after a crash makes the same actions under the same ids. An action may happen twice; none is left
out. `coordinator/listeners` runs them."""
