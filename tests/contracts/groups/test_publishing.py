"""One decision in several tables: touched ones get one snapshot, others nothing, the anchor the vector."""

import pytest

from sluicegate.lakes.port import Absent, Found, Published
from tests.contracts.groups.harness import Coordinator


def test_a_decision_is_in_all_of_its_tables(stream: Coordinator) -> None:
    outcome = stream.commit(1, {"orders": [1, 2], "items": [3], "bills": [4, 5]})
    assert outcome.snapshot == stream.head()
    assert outcome.tables == {"items": stream.head("items"), "bills": stream.head("bills")}
    assert {name: lake.ids() for name, lake in stream.tables.lakes.items()} == {
        "orders": [1, 2],
        "items": [3],
        "bills": [4, 5],
    }
    assert stream.ask(1, ["items", "bills"]) == Found(outcome.snapshot, tables=outcome.tables)


def test_tables_without_files_get_nothing(stream: Coordinator) -> None:
    stream.commit(1, {"orders": [1], "items": [2], "bills": [3]})
    before = stream.heads()
    stream.commit(2, {"orders": [4], "items": [5]})
    assert stream.head("bills") == before["bills"]
    stream.commit(3, {"orders": [6]})
    assert stream.head("items") == stream.known["items"].newest.snapshot
    assert stream.tables.lakes["items"].ids() == [2, 5]
    assert stream.tables.lakes["bills"].ids() == [3]


def test_an_anchor_without_files_gets_an_empty_snapshot(stream: Coordinator) -> None:
    before = stream.heads()
    outcome = stream.commit(1, {"bills": [1]})
    assert outcome.snapshot == stream.head() != before["orders"]
    assert stream.head("items") == before["items"]
    assert stream.tables.lakes["orders"].ids() == []
    assert stream.tables.lakes["bills"].ids() == [1]
    stream.commit(2, {})
    assert stream.head() != outcome.snapshot
    assert stream.head("bills") == outcome.tables["bills"]


def test_each_table_gets_the_mark(stream: Coordinator) -> None:
    stream.commit(1, {"orders": [1], "items": [2]})
    stream.commit(2, {"bills": [3]})
    newest = {
        name: lake.committer(stream.user).inspect().newest_made for name, lake in stream.tables.lakes.items()
    }
    assert newest == {"orders": 2, "items": 1, "bills": 2}


def test_the_anchor_has_the_vector_of_all_tables(stream: Coordinator) -> None:
    stream.commit(1, {"items": [1]})
    items = stream.head("items")
    assert items is not None
    assert stream.tables.vector() == {"items": (1, items.identity), "bills": (0, None)}
    stream.commit(2, {"orders": [2], "bills": [3]})
    bills = stream.head("bills")
    assert bills is not None
    assert stream.tables.vector() == {"items": (1, items.identity), "bills": (2, bills.identity)}
    stream.commit(3, {"orders": [4]})
    assert stream.tables.vector() == {"items": (1, items.identity), "bills": (2, bills.identity)}


def test_commits_of_others_stay(stream: Coordinator) -> None:
    stream.commit(1, {"orders": [1], "items": [2]})
    for number, lake in enumerate(stream.tables.lakes.values()):
        lake.foreign([100 + number])
    stream.commit(2, {"orders": [3], "items": [4], "bills": [5]})
    assert stream.tables.lakes["orders"].ids() == [1, 3, 100]
    assert stream.tables.lakes["items"].ids() == [2, 4, 101]
    assert stream.tables.lakes["bills"].ids() == [5, 102]


@pytest.mark.parametrize("names", [["items", "bills"], ["bills", "items"]])
def test_a_successor_with_names_in_any_order_continues(stream: Coordinator, names: list[str]) -> None:
    stream.commit(1, {"orders": [1], "items": [2], "bills": [3]})
    other = Coordinator(stream.tables, names=names)
    other.recorded, other.known = stream.recorded, dict(stream.known)
    assert isinstance(other.ask(1, names), Found)
    assert isinstance(other.ask(2, names), Absent)
    other.commit(2, {"orders": [4], "items": [5], "bills": [6]})
    assert stream.tables.lakes["bills"].ids() == [3, 6]


def test_a_stream_of_one_table_needs_no_transaction(stream: Coordinator) -> None:
    alone = Coordinator(stream.tables, "stream-b", names=())
    files = alone.files({"orders": [1]})

    def never(step: object) -> None:
        raise AssertionError("a transaction over several tables")

    if type(stream.tables).__name__ != "RestTables":
        alone.at_step(never)
    assert isinstance(alone.publish(1, alone.recorded, files), Published)
    assert stream.tables.lakes["orders"].ids() == [1]
