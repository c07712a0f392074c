"""Records of listeners that `sluicegate stream adopt` writes."""

import pytest

from sluicegate.cli.adopt import Listeners, _continued
from sluicegate.coordinator.listeners.records import ListenerRecord, decode, furthest
from sluicegate.coordinator.listeners.worker import Bounds
from sluicegate.coordinator.stream.state_records import listener_key


def record(owner: str, decision: int) -> ListenerRecord:
    return ListenerRecord(
        stream="s", listener="hook", type="webhook", owner=owner, partition=0, offset=5, decision=decision
    )


@pytest.mark.parametrize("owners", [("o1",), ("adopted", "o1")], ids=["first", "repeated"])
def test_a_listener_has_a_record_after_each_write_of_an_adoption(owners: tuple[str, ...]) -> None:
    """Killed after any of them, also where an earlier adoption has left a record under the same key."""
    former = {listener_key("s", "hook", owner): record(owner, 7 + at) for at, owner in enumerate(owners)}
    newest = furthest(former.values())
    assert newest is not None
    continued = {"hook": _continued(newest, "s", 4, Bounds(0, 30, "id"))}
    held: dict[str, ListenerRecord] = {**former}
    for key, value in Listeners(continued, (), ahead=tuple(former)).messages().items():
        made = decode(value) if value is not None else None
        if made is None:
            del held[key]
        else:
            held[key] = made
        assert held, "the listener would begin again"
    (left,) = held.values()
    assert (left.decision, left.offset, left.topic) == (4, 30, "id")
