"""The process of the service: a member of a consumer group, with the partitions that the group assigns to it.

Why it exists
-------------
Any number of coordinators may run. Kafka's consumer group gives each partition of the events topic to one
of them, and so each stream. This package is the part that is about the process and not about a stream:
start, session, assignment, reload of settings, health, signals, end.

    cli run ─► signals     held before anything else is imported, so that none is lost
               process     memory settings, the event loop, the last line of the log
               service     sessions: connect, take assignments, fetch, hand records to partitions (stream/)
               startup     Kafka, the topics and the state store, checked before the first session
               connections clients of one session, opened for a stack that closes them in reverse
               members     who else runs on this host, and who of them is dead
               keys        do all members sign with keys that the others have?
               janitor     deletes orphaned files, in a child process

A *session* is the time between two losses of Kafka. A session that fails ends with all its partitions. The
next one begins from the state records and the log; nothing of memory is carried over.

What may never happen
---------------------
* Two members act for one partition because one of them was frozen. The service does not rely on that:
  decisions of a former owner are void by the log (`coordinator/core`), and a table refuses a stale head. A
  fast rebalance is a matter of speed alone.
* A member is evicted that lives. `members` proves a death by the kernel's lock on a file, never by silence.
* An end loses work. On SIGTERM, effects in flight get a grace time; what they have not finished is asked
  about by the next owner.
* A reload changes the table or the identity of a running stream. Such a change is refused with its reason.

Where to start: `Service.run` in `service.py`.
"""
