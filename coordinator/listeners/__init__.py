"""Host of listeners: it feeds them the outcomes of a stream, runs their actions, and keeps their records.

A listener (`sluicegate.listeners`) is deterministic in the middle: from an outcome or the time, and from
its state, it makes the next state and actions. The host does the rest: `host.py` runs a task for each
listener of the streams that this process owns, `worker.py` reads outcomes in order, applies them and runs
the actions, `records.py` keeps state and place of each listener in the compacted topic, `facts.py` checks
all listeners at the start.

* Each outcome reaches a listener at least once, in order; its actions carry ids that make a repetition
  visible. The record is written after the actions, so a crash repeats actions and skips none.
* A slow or failing listener delays itself alone: it has a task and a backlog, read from the commits topic
  by offset. No commit waits for a listener.
* Each owner of a stream writes records under a key of its own, and a reader takes the furthest of all. So a
  former owner that still runs repeats actions at most, and never moves a listener back."""
