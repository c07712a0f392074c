"""Start of a driver without Spark: a new incarnation of its region, at the committed position."""

import logging
from typing import Final, NamedTuple
from uuid import uuid4

from sluicegate.events.models import Position
from sluicegate.events.notifications import RegistrationAnswered
from sluicegate.events.problems import Code
from sluicegate.writer_hooks.errors import SourceOffsetsUnknown
from sluicegate.writer_hooks.region import Region, Registered
from sluicegate.writer_hooks.registration import ask, ask_until_known, require_accepted

_log = logging.getLogger(__name__)

DRIVER: Final = "driver-"
"""Incarnations of a RegionDriver begin with it. The source offsets of others have another notation."""
_ATTEMPTS: Final = 5
"""Registrations of one start, each after a newer decision."""
_MOVED_ON: Final = frozenset({Code.BASE_DIFFERS, Code.INCARNATION_LIVE, Code.BASE_UNRESOLVED})
"""Refusals of a driver that does not know the newest decision, or the live incarnation."""


class Begun(NamedTuple):
    """A new incarnation that is in force."""

    registered: Registered
    base: Position | None
    """Committed position that it starts from; None: the region has none."""
    source_offsets: str | None
    """Source offsets of the base, if its driver published them."""


def probe(region: Region, kind: str, *, take_over: bool = False) -> RegistrationAnswered:
    """Ask for the committed position and its source offsets; nothing is changed.

    While a decision that moves the region has no outcome, the call waits for it. The arguments and errors are
    those of `begin_incarnation`.
    """
    incarnation = f"{kind}{uuid4().hex}"
    _, answer = ask_until_known(region, lambda: region.registration(incarnation, None, probe=True))
    if not answer.accepted and (not _has_moved_on(answer) or answer.unresolved is not None):
        require_accepted(region, incarnation, answer)
    if not take_over:
        _require_own(region, kind, answer)
    return answer


def begin_incarnation(region: Region, kind: str, *, take_over: bool = False, rests: bool = False) -> Begun:
    """Register a new incarnation in the place of the live one, and wait for the answer.

    - `kind`: how the name of the incarnation begins.
    - `take_over`: also after another kind of driver.
    - `rests`: the region is idle from the beginning, and no heartbeat is expected.

    Raises RegistrationRefused, RegistrationUnanswered, PublishFailed, TopicMissing, or SourceOffsetsUnknown.
    """
    answer = probe(region, kind, take_over=take_over)
    incarnation = f"{kind}{uuid4().hex}"
    for _ in range(_ATTEMPTS):
        base, replaces = answer.committed, answer.live
        event = region.registration(incarnation, base, replaces=replaces, rests=rests)
        answer = ask(region, event)
        if answer.accepted:
            if replaces is not None:
                place = (region.name, region.stream, replaces)
                _log.info("region %s of %s: this driver replaces the incarnation %s", *place)
            return Begun(Registered(incarnation, event.envelope.id), base, answer.source_offsets)
        if not _has_moved_on(answer):
            break
        if answer.unresolved is not None:
            # It came after the probe, and is mostly committed at once.
            answer = probe(region, kind, take_over=take_over)
        elif not take_over:
            _require_own(region, kind, answer)
    require_accepted(region, incarnation, answer)
    raise AssertionError("an accepted registration has returned")


def _has_moved_on(answer: RegistrationAnswered) -> bool:
    return answer.problem is not None and answer.problem.code in _MOVED_ON


def _require_own(region: Region, kind: str, answer: RegistrationAnswered) -> None:
    """Refuse a region whose source offsets this kind of driver cannot read. Nothing was changed yet."""
    at = answer.committed.incarnation if answer.committed is not None else None
    others = [each for each in (answer.live, at) if each is not None and not each.startswith(kind)]
    if others:
        raise SourceOffsetsUnknown(
            f"the region {region.name} of the stream {region.stream} is or was written by another kind of "
            f"driver, such as a query of Spark (incarnation {others[0]}). Give this driver another region. "
            "Or end the other one, wait until all that it completed is committed, and start this one with "
            "take_over=True: `start` returns the source offsets that the other one published, and your "
            "source has to continue there"
        )
