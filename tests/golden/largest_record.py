"""The largest state record: everything is as long as its limit allows, and as hard to compress."""

import random
import string

from sluicegate.coordinator.core import cuts
from sluicegate.coordinator.core.state import (
    MOST_ENDED,
    AssignmentState,
    Before,
    Decision,
    Former,
    Incarnation,
    LogState,
    RegionPhase,
    RegionState,
    Savepoint,
)
from sluicegate.coordinator.core.state_record import Condition, StateRecord, Waiting
from sluicegate.events.models import (
    MOST_LOCATIONS,
    MOST_REGION_NAMES,
    MOST_REGIONS,
    Position,
    StreamPolicy,
)
from sluicegate.events.problems import Code, Problem
from tests.golden.coordinator import STREAM


def random_text(dice: random.Random, alphabet: str, length: int) -> str:
    return "".join(dice.choices(alphabet, k=length))


def largest_record(dice: random.Random) -> StateRecord:
    """Return a record in which everything is as long as its limit allows, and as hard to compress.

    The decision without an outcome is the first one of its assignment, so that the one before is kept, too.
    """
    plain = "".join(map(chr, range(32, 127)))
    safe = string.ascii_letters + string.digits
    names = [random_text(dice, safe, MOST_REGION_NAMES // MOST_REGIONS) for _ in range(MOST_REGIONS)]
    each = cuts.MOST // MOST_REGIONS - 20

    def position() -> Position:
        life, digest = random_text(dice, safe, 64), random_text(dice, plain, 128)
        return Position(incarnation=life, checkpoint=dice.randrange(10**18), digest=digest)

    def region() -> RegionState:
        base, run = position(), random_text(dice, plain, 64)
        life = Incarnation(id=random_text(dice, safe, 64), from_offset=dice.randrange(2**62), base=base)
        return RegionState(
            phase=RegionPhase.LIVE,
            incarnation=life,
            run=run,
            begun=dice.randrange(10**18),
            position=position(),
            source_offsets=random_text(dice, plain, each),
            watermark=dice.randrange(2**62),
            fault=Problem(code=Code.FILES_LOST, region=names[0], incarnation=life.id, checkpoint=10**17),
        )

    regions, before = {name: region() for name in names}, {name: region() for name in names}
    former = {
        name: at.model_copy(update={"incarnation": region().incarnation}) for name, at in before.items()
    }
    assignment = AssignmentState(number=2**62, regions=names)
    made = Decision(
        id=2**62,
        digest=random_text(dice, plain, 128),
        offset=2**62,
        cut={name: at.position for name, at in regions.items() if at.position is not None},
        fallbacks={},
        parts=[2**62 + dice.randrange(2**20) for _ in range(MOST_REGIONS)],
        files=2**62,
        first_offset=2**62,
        before=Before(
            regions=before,
            watermark=0,
            provisional=True,
            former=Former(assignment=assignment, regions=former),
        ),
    )
    state = LogState(
        policy=StreamPolicy(
            number=1,
            regions=tuple(names),
            allowed_locations=tuple(random_text(dice, plain, 1024) for _ in range(MOST_LOCATIONS)),
        ),
        assignment=assignment,
        regions=regions,
        ended={random_text(dice, safe, 64): name for name in names[:MOST_ENDED]},
        savepoints=[
            Savepoint(
                name=f"s{number}",
                offset=0,
                targets={name: position() for name in names},
                sealed_later=names,
                discarded=names,
            )
            for number in range(5)
        ],
        unresolved=made,
    )
    record = StateRecord(stream=STREAM, applied=2**62, low_water=0, state=state)
    problem = Problem(code=Code.EVENTS_MISSING, names=(random_text(dice, plain, 200),))
    shown = [Condition(kind="stall", problem=problem) for _ in range(400)]
    return record.model_copy(
        update={
            "conditions": shown,
            "announced": dict.fromkeys(names, problem),
            "heard": {name: dice.randrange(2**50) for name in names},
            "intervals": {name: dice.randrange(2**26) for name in names},
            "waiting": {name: Waiting(files=2**40, rows=2**62, since=2**50) for name in names},
        }
    )
