"""Everything on one machine: embedded servers, `sluicegate servers` and `up`, and the demo.

The parts are one above the other, and none imports a higher one:

* errors.py, process.py, jars.py and servers.py are the embedded servers: Kafka and a Redis-protocol server
  (Valkey) as child processes on loopback ports. Tests and benchmarks use them without the command line, so
  these four import neither click nor another part of it (an import rule in pyproject.toml). No container
  engine is needed: the jars of Kafka come from a Maven repository (kafka.jars lists them),
  Valkey from a wheel, and Java from one where the machine has none.
* up.py has the commands that run them until Ctrl-C, for tables of the user.
* The rest is the demo. demo.py is the command; it must be importable without the packages of the demo, to
  name those that are missing. run.py puts the parts together: flights.py and tables.py are data, jobs.py the
  writers, kills.py the coordinator and its killer, watch.py the observer.

An embedded server has to be as dependable as a real one, since tests draw conclusions from its failures:

* A server never outlives the process that started it, not even one that is killed. A small shell process
  leads the group of the server and reads a pipe; at the end of the pipe it kills the group (process.py).
* After the first start its port is fixed, below the ephemeral range, so that clients find it there after a
  kill. A port may be taken between the choice and the start: then another is tried, unless the user has named
  it.
* It is ready when its own log says so. Another program on the same port is not mistaken for it.
* A directory of the cache is complete or absent. It is filled under another name, synced, and renamed, while
  a file lock keeps other processes out. The lock ends with its holder.
* `kill` is a crash: no flush, and the data and the port stay for the next start. `stop` is clean, and removes
  a temporary directory; one that was given is kept.

What the demo proves: three streaming jobs write 336,776 real flights into one table through a coordinator
that is killed in the middle of its work, and in the end each row is in the table exactly once, with every
column as in the source. For this to mean something:

* The source is read from its package again, and the rows have ids. The libraries of the formats read the
  table; the coordinator commits without them. A duplicate and a missing row do not cancel out.
* The phases of the kills are read from the log of the killed coordinator. A kill takes place in a step of a
  commit as often as possible; files are released step by step, so that there is always something to commit.
* The exit status is 0 only if all of this is exact. The last line of the output, with `--json`, is one object
  with the counts. Otherwise the folder of the run stays, and is named.
* Each part is ended in the reverse order of its start, also after Ctrl-C, SIGTERM or an error. Standard error
  of all child processes goes to a file, since the JVM writes to it at will.

Where to start: servers.py for tests, run.py for the demo.
"""
