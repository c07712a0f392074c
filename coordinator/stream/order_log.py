"""A line of the log for each order of an operator that a coordinator reads."""

from typing import Final

import structlog
from aiokafka import ConsumerRecord

from sluicegate.coordinator.telemetry.messages import format_problem
from sluicegate.coordinator.telemetry.wording import iso_time
from sluicegate.events.envelope import EventType, LogRecord
from sluicegate.events.models import StreamCommand
from sluicegate.events.orders import has_order, is_note, read_order
from sluicegate.events.problems import Problem
from sluicegate.events.signing import Signatures

log = structlog.get_logger(__name__)

_ORDERED: Final = frozenset({EventType.STREAM_COMMAND, EventType.REGION_REGISTERED})
"""Types of the records that a command of an operator writes."""


def log_order(
    record: LogRecord, raw: ConsumerRecord, signatures: Signatures, ignored: Problem | None
) -> None:
    """Log an order with its sender, as the sender claims, and its effect; other records are skipped.

    `raw` is the record as it was read. The field `signature` is a `State`: an event of a writer, such as a
    reset, is accepted without a signature in each mode, and its sender is only a claim then. A line can
    repeat when another member gets the partition.
    """
    kind, body, stream = record.envelope.type, record.body, record.envelope.stream
    headers = raw.headers
    if kind not in _ORDERED or (kind is EventType.REGION_REGISTERED and not has_order(headers)):
        return
    order, command = read_order(headers), body if isinstance(body, StreamCommand) else None
    fields: dict[str, object] = {"stream": stream, "offset": record.offset}
    # A copy of a signed order has the same id at another offset.
    fields["id"] = record.envelope.id
    fields["signature"] = signatures.state(raw.timestamp, headers, raw.value)
    if order is not None:
        sender = {"order": order.order, "by": order.by, "host": order.host, "at": iso_time(order.at)}
        fields |= {**sender, "release": order.release, "reason": order.reason, "about": order.about}
    if command is not None and not is_note(command):
        fields["command"] = command.model_dump(mode="json", exclude_defaults=True)
    if region := record.envelope.region:
        fields["region"] = region
    if is_note(body):
        fields["effect"] = "noted"
    elif ignored is None:
        fields["effect"] = "accepted"
    else:
        why = {"code": ignored.code.value, "refusal": format_problem(ignored, stream)}
        fields |= {"effect": "refused", **why}
    log.info("order", **fields)
