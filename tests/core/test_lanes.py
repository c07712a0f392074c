"""Pauses of a lane: they double, and streams that failed together do not come back together."""

from sluicegate.coordinator.core.lane import Lane

FIRST, LONGEST = 50, 10_000


def pauses(name: str, count: int = 12) -> list[int]:
    lane, found = Lane(name, FIRST, LONGEST), []
    for _ in range(count):
        lane.failed(0)
        found.append(lane.resume_at)
    return found


def test_pauses_double_and_stay_within_a_quarter() -> None:
    for number, pause in enumerate(pauses("flights/table")):
        full = min(FIRST * 2**number, LONGEST)
        assert full * 3 // 4 <= pause <= full


def test_streams_come_back_at_moments_of_their_own() -> None:
    last = {pauses(f"stream{number}/table")[-1] for number in range(100)}
    assert len(last) > 90
    assert max(last) - min(last) > LONGEST // 5


def test_one_stream_pauses_alike_in_every_process() -> None:
    assert pauses("flights/table") == pauses("flights/table")
    assert len(set(pauses("flights/table")[-4:])) > 1, "and not always alike"
