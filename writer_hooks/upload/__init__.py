"""Asynchronous uploads: a task leaves its files on its machine, and another process uploads them.

Why the parts exist
-------------------
With `upload = sync`, the default, a task ends when its files are in the store, and a slow store slows the
job. With `upload = async`, a task ends when its files and its events are durable on the machine. One
uploader for each machine and user sends them later, in a process that outlives the executor. The driver
completes the checkpoint at once. The coordinator commits it when all events that the completion names have
arrived, so a completion without its files does no harm, but the region waits.

- `delivery.py`: the end of a task's attempt, for both ways.
- `spool.py`: the folder with entries, their files, locks and limits. An entry is one attempt: files, the
  folder that they go to, the events to publish, and the connections for that.
- `process.py`: the process of the uploader, and its start by a task or a driver.
- `uploader.py`: the work of the process. It sends entries of several targets in turns, and repeats
  failures with growing pauses.
- `before_publish.py`: a call of the user's function `before.publish`, in a process of its own. Uploaders
  call it, and so does a task that uploads its files itself. It may fail for as long as it likes.
- `overdue.py`: the driver's view. It keeps the uploader of its own machine alive, and reports checkpoints
  whose events do not arrive in time, because their machine may be lost.

What may never happen
---------------------
- An event is published before its files are in the store.
- A file is uploaded with other content than its task has written. Its digest is compared before the upload,
  and again after the user's function. A file that is in the store already is never replaced.
- The user's function stalls a region. It is called again until it succeeds, and no time limit counts.
- An entry is removed before its events are acknowledged, or files are removed before their entry. A sweep
  removes only files without an entry whose writer has released its lock.
- Two uploaders send from one spool. One holds the lock; an uploader that ends releases it, and looks once
  more.
- A full disk stops the uploads that would free it. Records, logs and process ids are optional.
- Files are lost and nobody reports it. The uploader reports files that it can never send, such as those
  that time out; the driver reports a checkpoint that stays without its events. Both stall the region, whose
  reset reads the rows again.
- Passwords leave the machine of the user. The spool belongs to one user, and its entries hold the
  connections.

The way of one batch
--------------------
1. `delivery_of` returns the way of an attempt. `Deferred` waits until the spool is below its limits, and
   gives the writer a storage in the spool in place of that of the table (`lakes/spooled.py`).
2. `Deferred.deliver` puts the entry when the files are durable, and starts the uploader if none runs
   (`process.py`). The task returns the ids of its events.
3. The driver publishes the completion, as always.
4. The uploader (`uploader.py`) puts each file at its final place, publishes the events, and removes the
   entry.
5. The driver keeps the time of each completed checkpoint (`overdue.py`) until it is committed.

Where to start reading
----------------------
`spool.py`, whose comment at the top lists the folders, then `uploader.send`.
"""
