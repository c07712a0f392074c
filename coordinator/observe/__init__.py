"""Signs of the service for people and programs: logs, metrics, spans, messages, and the view of a stream.

Everything here is made from state that exists anyway, and nothing is decided from it. So a fault here costs
sight, never rows.

* `messages.py` turns a code with its arguments into the three parts of a message: what happened, why, what
  to do. It is the only place with sentences. The core, the wire and all comparisons use codes.
* `view.py` is the one view of a stream. `sluicegate status`, `/status`, the live page and the record in
  Redis are made there, from a state record and the log as one coordinator has it. Its reasons why a stream
  does not progress are in one order, so that every place names the same one first.
* `metrics.py` has every metric once, with its unit and its help; the reference page is made from it. It
  renders thousands of series without a turn of the event loop that others would notice.
* `logs.py`: one event, one line, with fields, and without secrets. `spans.py` makes the spans of commits with
  OpenTelemetry, which only the extra `otel` brings.

A line of the log is an event that has happened. A condition is a state that lasts: it is shown by the view,
the page and a metric as long as it is true, and logged when it begins and when it ends."""
