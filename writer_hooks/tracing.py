"""The trace context of the running job, if it has one."""

import os
import sys
from typing import Final

from sluicegate.events.encoding import parse_traceparent
from sluicegate.events.envelope import EventType

VARIABLE: Final = "TRACEPARENT"
"""Variable of the environment for jobs that are started by a traced program."""
TRACED: Final = EventType.CHECKPOINT_COMPLETED
"""Events that carry the context: one for each checkpoint, and the commit knows which it includes."""


def current_traceparent() -> str | None:
    """Return the context of the current span of OpenTelemetry, else of the environment; None without one.

    A job that does not use OpenTelemetry does not load it.
    """
    api = sys.modules.get("opentelemetry.trace")
    if api is not None:
        context = api.get_current_span().get_span_context()
        if context.is_valid:
            return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"
    return parse_traceparent(os.environ.get(VARIABLE))
