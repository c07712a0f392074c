"""Actions that several types of listeners have, and the ids of what they publish."""

import hashlib
from dataclasses import dataclass

import structlog

from sluicegate.listeners.port import Action, Done, Result

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Warn(Action):
    """Write a warning to the log: the text of the action, with more fields."""

    fields: tuple[tuple[str, object], ...] = ()


def warn(action: Warn, stream: str) -> Result:
    """Run a warning."""
    log.warning(action.text, stream=stream, **dict(action.fields))
    return Done()


def notification_id(stream: str, type: str, key: str) -> str:
    """Return the id of what an action publishes, in the form of the ids of other notifications."""
    return hashlib.sha256(f"{stream}/{type}/{key}".encode()).hexdigest()[:32]
