"""Pauses between attempts are spread."""

from sluicegate.kafka.clients import spread


def test_pauses_are_spread_around_their_length() -> None:
    found = [spread(8.0) for _ in range(500)]
    assert all(6.0 <= pause <= 10.0 for pause in found)
    assert max(found) - min(found) > 3.0
    assert abs(sum(found) / len(found) - 8.0) < 0.5
