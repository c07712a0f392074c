"""Accounts of commits: what they state, their size, and what is refused."""

import base64
from random import Random

import cramjam
import pytest

from sluicegate.coordinator.core.state import (
    AssignmentState,
    Before,
    Decision,
    Incarnation,
    LogState,
    RegionPhase,
    RegionState,
)
from sluicegate.coordinator.replay.adoption import state_of
from sluicegate.coordinator.stream.account import (
    Account,
    UnreadableAccount,
    account_of,
    decode_account,
    encode_account,
)
from sluicegate.events.models import Position


def at(checkpoint: int, incarnation: str = "i1") -> Position:
    return Position(incarnation=incarnation, checkpoint=checkpoint, digest=f"d{checkpoint}")


def region(checkpoint: int, phase: RegionPhase = RegionPhase.LIVE, **more: object) -> RegionState:
    found = RegionState(
        phase=phase,
        incarnation=Incarnation(id="i1", from_offset=0, base=None),
        position=at(checkpoint),
        source_offsets=f'{{"next": {checkpoint}}}',
    )
    return found.model_copy(update=more)


def state(**regions: RegionState) -> LogState:
    """A state with decision 3 under way, in which each region moves by one."""
    before = {
        name: each.model_copy(update={"position": at(each.position.checkpoint - 1), "source_offsets": "old"})
        for name, each in regions.items()
        if each.position is not None
    }
    made = Decision(
        id=3,
        digest="content",
        offset=9,
        cut={name: each.position for name, each in regions.items() if each.position is not None},
        fallbacks={},
        watermark=50,
        parts=[],
        files=0,
        first_offset=5,
        before=Before(regions=before, watermark=40, provisional=False, former=None),
    )
    current = AssignmentState(number=2, regions=[*regions], after=1, provisional=False)
    ended = {"i0": "r0"}
    return LogState(
        assignment=current, regions=regions, ended=ended, decided=3, unresolved=made, watermark=50
    )


def accounted(log: LogState, digest: str = "content") -> Account:
    found = account_of("flights", log, digest)
    assert found is not None
    return decode_account(encode_account(found))


def test_a_commit_states_the_positions_that_it_reaches() -> None:
    found = accounted(state(r1=region(7), r2=region(4)))
    assert (found.decision, found.digest, found.watermark) == (3, "content", 50)
    assert {name: each.position for name, each in found.regions.items()} == {"r1": at(7), "r2": at(4)}
    assert found.regions["r1"].source_offsets == '{"next": 7}'
    assert [*found.ended] == ["i0", "i1"]


def test_the_commit_of_a_revert_states_the_positions_before() -> None:
    found = accounted(state(r1=region(7)), "digest of the revert")
    assert (found.regions["r1"].position, found.watermark) == (at(6), 40)
    assert found.regions["r1"].source_offsets == "old"


def test_a_stream_without_a_decision_has_none() -> None:
    assert account_of("flights", LogState(), "content") is None


def test_a_region_that_has_ended_stays_so_and_one_with_more_work_has_to_register_again() -> None:
    found = state_of(
        accounted(
            state(
                done=region(7, RegionPhase.CLOSED, final=7),
                early=region(7, RegionPhase.CLOSED, final=9),
                live=region(7),
                removed=region(7, RegionPhase.REMOVED),
            )
        )
    )
    phases = {name: each.phase.value for name, each in found.regions.items()}
    assert phases == {"done": "closed", "early": "waiting", "live": "waiting", "removed": "removed"}
    assert sorted(found.active()) == ["early", "live"]
    assert (found.decided, found.unresolved, found.watermark) == (3, None, 50)


def test_source_offsets_are_left_out_where_they_need_too_much_room() -> None:
    noise = Random(1)
    large = {f"r{number}": region(7, source_offsets=noise.randbytes(30_000).hex()) for number in range(4)}
    found = accounted(state(**large))
    assert {each.source_offsets for each in found.regions.values()} == {None}
    assert found.regions["r3"].position == at(7)
    many = {f"r{number}": region(7) for number in range(20)}
    small = account_of("flights", state(**many), "content")
    assert small is not None
    assert len(encode_account(small)) < 4_000


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("no base64 !", "damaged"),
        (base64.b64encode(b"no zstd").decode(), "damaged"),
        (base64.b64encode(bytes(cramjam.zstd.compress(b'{"version": 1}'))).decode(), "damaged"),
        (
            base64.b64encode(bytes(cramjam.zstd.compress(b'{"version": 2, "all": "new"}'))).decode(),
            "version 2, and this release reads 1. Run this command with the release whose coordinators",
        ),
    ],
)
def test_what_is_no_account_of_this_release_is_refused(text: str, why: str) -> None:
    with pytest.raises(UnreadableAccount, match=why):
        decode_account(text)
