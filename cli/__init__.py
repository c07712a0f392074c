"""The command line, `sluicegate`: what an operator reads from a deployment, and what he orders it to do.

A command is a program of its own beside the coordinators. It has the same settings file, and reads the same
topics and tables, but it is no member of their group. Three kinds of commands differ in what they may write:

* Reading commands (`status`, `history`, `audit`, `wait`, `conformance`, `replay verify`, the lists) write
  nothing. `check` tries the operations of a coordinator with probes of its own names, and removes them again.
* Orders (`stream pause`, `region remove`, `commit revert`, ...) append one event to the log of a stream.
  Every coordinator obeys it at its place in the log, so it makes no difference which of them runs at the
  moment. `region reset` is one of them: it appends a registration, and moves files of a query's checkpoint
  location.
* Repairs (`replay repair`, `stream recover`, `stream adopt`, `orphans delete`, `dead-letters retry`, ...)
  work on a table, on state records or on other topics. Before its work, each appends a note to the log, which
  has no effect, so that `audit` shows who did it and why.

Before an order is appended, it is compared with three things (orders.py):

1. its signing key with those of the coordinators. An order with another key is a dead letter for them, while
   the command itself would read it back without an objection;
2. its effect with the state at the end of the log. The command folds the log from the newest state record
   with the rules of the core (stream_log.py). An order without effect is refused, and the log stays as it is;
3. its outcome with the records after it. Another event may come in between, so the effect is known only at
   the offset of the order itself. A command whose effect has not come in time says that the order stays in
   force.

Before a repair writes, it proves that nobody else does, and that it is needed:

* `replay repair`, `stream adopt`, and `stream recover` of a record that lacks decisions, refuse while members
  of the group run, or cannot be seen. An owner of the partition would write its own state record again, or
  commit beside the command. `repair` asks before each commit, since a coordinator can start at any time;
* `recover` replaces a record that is malformed, or that lacks decisions which both the log and the table
  have. `adopt` refuses a stream that continues by itself, and listeners that are behind the table;
* `orphans delete` reads the log and the table again before each deletion; `repair` and `rebuild` want a log
  whose records are all verified, if signing is required;
* commands that write state records look up their permissions before the note, so that no note is left of work
  that the brokers refuse.

What may never happen:

* A command joins the group of the coordinators, or commits its offsets: partitions would move (kafka.py).
* A command decides a commit. Tables get commits of decided cuts alone, by `replay repair` and `rebuild`, with
  the ids and digests of the log, so that a coordinator finds them.
* Two commands write a state record in different ways. `recover`, `adopt` and `forget` are the only ones, and
  use one function (recovery.py). `adopt` writes the record that is read first last, so an interrupted command
  is repeated.
* A user sees a traceback for something that he can correct. Such an error is a UserError: what happened, why,
  what to do, and status 2 (errors.py). Status 1 says that the command ran, and that its answer is "no" or
  "not yet".
* Output has a secret of the settings, or control characters of a message from outside.
* A command waits for packages that it does not need. Modules of commands are named as strings in main.py and
  imported on first use; `--version` imports none of them. Redis, Spark, the libraries of table formats and
  the HTTP client are imported where they are used (tests/cli/test_command_tree.py).

Where to start: main.py has the list of commands. options.py has their common options: the settings file, the
stream, the sender and the reason of an order. Then read orders.py and stream_log.py, and stream.py as their
plainest user. The other files are a noun each. local/ needs nothing but this machine, and explains itself.
"""
