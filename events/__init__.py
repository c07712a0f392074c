"""The wire contract: every message of every topic, as models, attributes, codes and a codec. Nothing else is
here.

A message is a CloudEvent in Kafka's binary mode: attributes are headers, the body is JSON. `envelope.py`
has the types and attributes, `models.py` the bodies of the log, `notifications.py` those of the public
feed, `dead_letters.py` the form of a dead letter. `codec.py` reads, `encoding.py` writes; both are pure,
and the caller gives the time. `files.py` has the rules that names and locations of data files obey,
`orders.py` the sender of an operator's order, `signing.py` the signatures of coordinators and operators,
`problems.py` the codes of everything that can go wrong. `schemas.py` and `asyncapi.py` make documents for
other languages from the models.

* Nothing raises because of a message. One that cannot be used becomes a `Flaw`, which is data: a dead
  letter, or a stop with a way out. A message of an unknown type is a dead letter, of a newer version a
  stop.
* Every number, list and text has a limit, so that no event can make a state record that does not fit Kafka.
* Ids are derived from content. A repetition has the same id, and nothing depends on a sentence or on
  `ce_time`.
* Nothing is unpickled, and no name of a class comes from the wire.

The prose form of the contract is `docs/writers/contract.md`.
"""
