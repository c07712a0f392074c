"""Problems of listeners: a code for programs, and a sentence with the way out for people."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, NamedTuple


class ListenerCode(StrEnum):
    """Codes of the problems of listeners."""

    RETRYING = "listener-retrying"
    REFUSED = "listener-refused"
    OUTCOMES_LOST = "listener-outcomes-lost"
    UNUSABLE = "listener-unusable"


class ListenerProblem(NamedTuple):
    """A problem of one listener."""

    code: ListenerCode
    message: str


def retrying(step: str, reason: str) -> ListenerProblem:
    """A step fails, and is tried again."""
    return ListenerProblem(ListenerCode.RETRYING, f"This fails, and is tried again: {step}. {reason}")


def refused(reason: str, stream: str, listener: str) -> ListenerProblem:
    """An action can never take effect."""
    return ListenerProblem(
        ListenerCode.REFUSED,
        f"The listener has stopped: {reason} To let it try again, change its settings, or raise `revision` "
        f"in [streams.{stream}.listeners.{listener}], and send the coordinators SIGHUP.",
    )


def outcomes_lost(first: int, last: int, stream: str, listener: str) -> ListenerProblem:
    """The feed has lost outcomes before the listener handled them."""
    return ListenerProblem(
        ListenerCode.OUTCOMES_LOST,
        f"The commits topic has no outcome of the decisions {first} to {last} any more, and the listener has "
        f"not handled them. Do by hand what it would have done. Then set skip_through = {last} in "
        f"[streams.{stream}.listeners.{listener}], and send the coordinators SIGHUP.",
    )


def unusable(reason: str) -> ListenerProblem:
    """The listener cannot be made, or its record cannot be used."""
    return ListenerProblem(ListenerCode.UNUSABLE, reason)


def unfit(reason: str) -> ListenerProblem:
    """The settings do not fit the table now, or the table cannot be read."""
    return unusable(
        f"The listener waits for its table: {reason.rstrip('.')}. It looks again within a minute; after a "
        "change of the settings, send the coordinators SIGHUP. No outcome is lost meanwhile, as long as the "
        "commits topic keeps it."
    )


SHOWN: Final = 20
"""Actions that a note lists."""


def skipped(through: int, decisions: Sequence[int], texts: Sequence[str]) -> str:
    """Return a note about the actions that `skip_through` has left out since the start."""
    shown = "; ".join(texts[:SHOWN]) + (f"; and {len(texts) - SHOWN} more" if len(texts) > SHOWN else "")
    first, last = decisions[0], decisions[-1]
    after = f"decision {last}" if first == last else f"the decisions {first} to {last}"
    return (
        f"skip_through = {through} has left this out, after {after}: {shown}. To leave out nothing more of "
        f"decision {through}, such as a later savepoint, remove skip_through, and send the coordinators "
        "SIGHUP."
    )


def unready(reason: str) -> ListenerProblem:
    """A file or a package that the settings name cannot be used now."""
    return unusable(
        f"The listener waits: {reason.rstrip('.')}. It looks again within a minute. No outcome is lost "
        "meanwhile, as long as the commits topic keeps it."
    )
