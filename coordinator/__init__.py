"""The coordinator: it turns events of writers into commits of tables.

Read in this order: `core` (the state machine), `stream` (its shell), `service` (the process). Beside this
way:

    settings    what an operator configures
    observe     logs, metrics, spans, messages, and the one view of a stream
    listeners   work after a commit
    replay      the log of a stream, read by commands and by the janitor
    web         the live page and the HTTP interface

Each folder imports only from those that stand below it; the contracts of import-linter in pyproject.toml
are the picture. No folder but `core` decides about a commit."""
