"""Access to Kafka for the service, the writer hooks and the commands.

`settings.py` is the connection; `clients.py` starts and stops clients so that none stays open after an
error or a cancellation; `reading.py` reads batches, also those that the library cannot decode; `bodies.py`
keeps bodies of pending events within a budget of memory; `producer.py` notices a sequence gap that only a
new producer resolves; `topics.py` has the four topics and their desired settings; `permissions.py` and
`authorized.py` say which operations are needed and which are allowed; `outages.py` turns the client's lines
of an outage into one at its beginning and one at its end. `internals.py` has every use of a private
attribute of aiokafka, each with its reason and a test.

* A read never skips a record silently. A record that cannot be decoded is handed over as such, by its offset.
* A time-out of a send is an unknown outcome. Nothing here retries what might have happened, except under the
  idempotent producer's own sequence numbers.
"""
