"""Figures of what waits: each event changes them, and duplicates and copies do not count twice."""

from sluicegate.coordinator.core.gauges import pending_files, waiting
from tests.core.scene import opened


def test_what_waits_is_the_sum_of_its_events() -> None:
    scene = opened()
    for number in range(3):
        scene.batch(number)
    scene.node.read(10_000)
    book = scene.machine.book
    parts = [
        part
        for ledger in book.ledgers.values()
        for entry in ledger.checkpoints.values()
        for part in entry.parts.values()
    ]
    assert parts
    assert pending_files(book) == sum(part.files for part in parts)
    assert sum(each.files for each in waiting(book).values()) == sum(part.files for part in parts)
    assert sum(each.rows for each in waiting(book).values()) == sum(part.rows for part in parts)
    entry = next(iter(next(iter(book.ledgers.values())).checkpoints.values()))
    event, part = next(iter(entry.parts.items()))
    before = entry.files
    entry.add(event, part._replace(offset=part.offset))
    assert entry.files == before
    scene.settle()
    assert pending_files(book) == 0
