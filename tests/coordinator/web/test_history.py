"""Cuts of the page, from the messages of the commits topic."""

from typing import Any

from sluicegate.coordinator.web.feed import KEPT, History
from sluicegate.events.models import CommitSummary, CutAbandoned, CutReverted, Position, SnapshotRef
from sluicegate.events.notifications import Committed, Notification, NotificationType, Stalled
from tests.events.examples import PROBLEM


def at(checkpoint: int) -> Position:
    return Position(incarnation="q1", checkpoint=checkpoint, digest=f"range-{checkpoint}")


def notified(id_: str, body: Any, stream: str = "flights") -> Notification:
    return Notification(id_, NotificationType.COMMITTED, stream, "", "", body)


def committed(
    decision: int, cut: dict[str, Position], *moved: str, late: tuple[str, ...] = (), **summary: Any
) -> Notification:
    """Return the message of a commit; `late` are the regions that fell back."""
    told = CommitSummary(table="file:/t", moved=moved, visible=decision * 1_000 + 30, **summary)
    return notified(
        f"n{decision}",
        Committed(
            decision=decision,
            cut=cut,
            fallbacks={name: cut.get(name) for name in late},
            snapshot=SnapshotRef(id=decision, identity="s"),
            watermark=None,
            files=1,
            summary=told,
        ),
    )


def states(history: History) -> list[dict[str, tuple[str, int | None, int, int | None]]]:
    return [
        {
            name: (each.state, each.checkpoint, each.fallbacks, each.since)
            for name, each in cut.regions.items()
        }
        for cut in history.cuts("flights")
    ]


def test_regions_move_stay_behind_and_rest() -> None:
    history = History()
    history.add(committed(1, {"EWR": at(1), "JFK": at(1)}, "EWR", "JFK"), 1_000)
    history.add(committed(2, {"EWR": at(2), "JFK": at(1)}, "EWR", late=("JFK", "LGA")), 2_000)
    history.add(committed(3, {"EWR": at(2), "JFK": at(1)}, late=("JFK",)), 3_000)
    history.add(committed(4, {"EWR": at(2), "JFK": at(2)}, "JFK", forced=True), 4_000)
    assert states(history) == [
        {"EWR": ("moved", 1, 0, 1_000), "JFK": ("moved", 1, 0, 1_000)},
        {
            "EWR": ("moved", 2, 0, 2_000),
            "JFK": ("fell back", 1, 1, 1_000),
            "LGA": ("fell back", None, 1, None),
        },
        {"EWR": ("idle", 2, 0, 2_000), "JFK": ("fell back", 1, 2, 1_000)},
        {"EWR": ("idle", 2, 0, 2_000), "JFK": ("moved", 2, 0, 4_000)},
    ]
    assert [each.outcome for each in history.cuts("flights")] == ["full", "partial", "partial", "forced"]


def test_what_was_abandoned_or_reverted_moves_nothing() -> None:
    history = History()
    history.add(committed(1, {"EWR": at(1), "JFK": at(1)}, "EWR", "JFK"), 1_000)
    history.add(notified("a", CutAbandoned(decision=2, attempt=1, kind="ratio", regions=("JFK",))), 2_000)
    history.add(notified("r", CutReverted(decision=2, digest="d", table="t", snapshot=None)), 3_000)
    history.add(committed(3, {"EWR": at(2), "JFK": at(1)}, "EWR", late=("JFK",)), 4_000)
    assert [each.outcome for each in history.cuts("flights")] == ["full", "abandoned", "reverted", "partial"]
    assert states(history)[1] == {"JFK": ("fell back", 1, 0, 1_000)}
    assert states(history)[3] == {"EWR": ("moved", 2, 0, 4_000), "JFK": ("fell back", 1, 1, 1_000)}


def test_a_repetition_and_other_messages_are_no_cuts() -> None:
    history = History()
    message = committed(1, {"EWR": at(1)}, "EWR")
    assert history.add(message, 1_000) is not None
    assert history.add(message, 9_000) is None
    assert history.add(notified("s", Stalled(problem=PROBLEM)), 1_000) is None
    assert [each.time for each in history.cuts("flights")] == [1_000]
    assert history.cuts("trains") == ()


def test_the_newest_cuts_of_each_stream_are_kept() -> None:
    history = History()
    for number in range(1, KEPT + 11):
        history.add(committed(number, {"EWR": at(number)}, "EWR"), number)
    assert [each.decision for each in history.cuts("flights")] == list(range(11, KEPT + 11))


def test_the_memory_of_all_streams_together_is_bounded() -> None:
    history = History(most_cells=20)
    for number in range(1, 11):
        history.add(committed(number, {"EWR": at(number)}, "EWR"), number)
    other = committed(99, {name: at(1) for name in "abcde"}, "a")
    history.add(other._replace(stream="trains"), 99)
    assert [each.decision for each in history.cuts("flights")] == list(range(4, 11))
    assert len(history.cuts("trains")) == 1


def test_delays_are_of_the_commits_whose_events_were_seen() -> None:
    history = History()
    assert history.delays("flights") is None
    history.add(committed(1, {"EWR": at(1)}, "EWR"), 1_000)
    assert history.delays("flights") is None
    for number in range(2, 12):
        history.add(
            committed(number, {"EWR": at(number)}, "EWR", sealed=number * 1_000 + 30 - number), number
        )
    found = history.delays("flights")
    assert found is not None
    assert (found.p50, found.p99, found.commits) == (6, 11, 10)
    # The clock of the broker may be ahead.
    history.add(committed(12, {"EWR": at(12)}, "EWR", sealed=99_000), 12_000)
    assert history.cuts("flights")[-1].delay == 0
