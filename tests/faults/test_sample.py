"""A sample of the fault campaign (tools/bench/faults.py): real processes, killed, frozen and failed.

A reader that shares no code with the product judges the tables of each format in the end.
"""

import ast
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final, cast

import pytest

import sluicegate.coordinator
import sluicegate.lakes
import sluicegate.writer_hooks
from sluicegate.failpoints.names import Failpoint
from sluicegate.failpoints.points import read_actions
from tests.faults.rolling import Plan, roll
from tests.faults.scenes import Maker, conflict, frozen, lake_fails, reverted
from tests.integration.waiting import BACKSTOP

pytestmark = [pytest.mark.kafka, pytest.mark.redis]

_FORMATS: Final = ("paimon", "iceberg", "delta")
NO_WAITING = BACKSTOP + 60.0
"""A session that outlasts the wait for a place: a restart that waited for it would not get there."""


async def test_killed_at_one_place_after_the_other_the_table_is_exact(make: Maker) -> None:
    """From the very first commit on; and no life waits for the session of the one before."""
    where = await make(session=NO_WAITING)
    plans = [
        Plan(Failpoint.APPEND_POLICY_AFTER),
        Plan(Failpoint.APPEND_DECISION_AFTER),
        Plan(Failpoint.APPEND_COMMITTED_BEFORE),
        Plan(Failpoint.LAKE_PUT_AFTER),
        Plan(Failpoint.WRITE_RECORD_AFTER),
        Plan(Failpoint.PUBLISH_BEFORE, 2),
        Plan(Failpoint.EVICT_AFTER),
    ]
    assert await roll(where, plans) == []
    assert read_actions(str(where.hits), "kill") == Counter(plan.point for plan in plans)


@pytest.mark.parametrize("lake", ["delta", "iceberg"])
async def test_killed_at_the_places_of_a_format_the_table_is_exact(make: Maker, lake: str) -> None:
    where = await make(lake=lake)
    plans = [
        Plan(Failpoint.CHECK_FILES_AFTER),
        Plan(Failpoint.APPEND_DECISION_AFTER),
        Plan(Failpoint.ASK_AFTER),
        Plan(Failpoint.LAKE_PUT_BEFORE),
        Plan(Failpoint.LAKE_PUT_AFTER),
        Plan(Failpoint.LAKE_PUT_DURABLE, 2),
        Plan(Failpoint.PUBLISH_AFTER),
        Plan(Failpoint.APPEND_COMMITTED_BEFORE),
        Plan(Failpoint.WRITE_RECORD_AFTER),
    ]
    assert await roll(where, plans) == []


@pytest.fixture(params=_FORMATS)
def make_lake(request: pytest.FixtureRequest, make: Maker) -> Maker:
    """Deployments whose tables are of one format."""
    return cast(Maker, partial(make, lake=request.param))


async def test_an_owner_that_was_frozen_before_its_publication_does_no_harm(make_lake: Maker) -> None:
    await frozen(make_lake, [Failpoint.LAKE_PUT_BEFORE])


async def test_a_decision_is_reverted_whatever_is_killed_meanwhile(make_lake: Maker) -> None:
    assert await reverted(make_lake) == 4


async def test_steps_that_fail_or_succeed_unnoticed_are_repeated(make_lake: Maker) -> None:
    await lake_fails(make_lake)


async def test_another_writer_is_first_and_the_coordinator_is_killed_then(make_lake: Maker) -> None:
    assert await conflict(make_lake) == 2


_INSTEAD: Final = ("storage_objects.py", "catalog.py")
"""Object stores, and an Iceberg catalog's change, pass the places of a put on local files."""


def _sources(lake: str) -> Iterator[Path]:
    """Yield the sources that a commit to a table of one format passes."""
    for package in (sluicegate.coordinator, sluicegate.lakes, sluicegate.writer_hooks):
        for source in Path(str(package.__file__)).parent.rglob("*.py"):
            if source.name not in _INSTEAD and source.parent.name not in {*_FORMATS} - {lake}:
                yield source


def _named(source: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "Failpoint"
        ):
            yield node.attr


def test_every_failpoint_stands_in_the_code_once() -> None:
    """That each is reached, too, is what the campaign checks at its end."""
    everywhere = set[str]()
    for lake in _FORMATS:
        found = Counter(name for source in _sources(lake) for name in _named(source))
        assert not {name: count for name, count in found.items() if count > 1}, lake
        everywhere |= found.keys()
    assert everywhere == {point.name for point in Failpoint}
