"""The mark of a user's newest commit counts in its own table only, and not above the table's version."""

from collections.abc import Mapping
from types import MappingProxyType, SimpleNamespace
from typing import Any, cast

import pytest

from sluicegate.lakes.delta.log import Txn
from sluicegate.lakes.delta.versions import Mark, mark_of, transactions

USER, TABLE = "sluicegate-s", "table-1"


def found(
    mark: Mark,
    *,
    version: int = 9,
    table: str = TABLE,
    made_for: str = TABLE,
    odd: Mapping[str, Txn] = MappingProxyType({}),
) -> Mark | None:
    """Read the mark in a state of a table that has the transactions of the mark."""
    entries = [cast(dict[str, Any], each["txn"]) for each in transactions(USER, mark, made_for, None)]
    txns = {each["appId"]: Txn(each["version"], each["lastUpdated"]) for each in entries}
    state = SimpleNamespace(txns={**txns, **odd}, version=version, metadata=SimpleNamespace(id=table))
    return mark_of(cast(Any, state), USER)


def mark(decision: int = 3, digest: str = "ab" * 32, version: int = 7) -> Mark:
    return Mark(decision, digest, version, 1_000)


@pytest.mark.parametrize("digest", ["ab" * 32, "a name", "AB", "", "é" * 20])
def test_a_mark_is_read_as_it_was_written(digest: str) -> None:
    assert found(mark(digest=digest)) == mark(digest=digest)


def test_the_mark_of_a_cloned_table_does_not_count() -> None:
    """A clone has the transactions of its source, and other commits."""
    assert found(mark(), table="a clone") is None
    assert found(mark(), made_for="a clone") is None


def test_a_mark_above_the_table_does_not_count() -> None:
    """The table was restored to a version before that of the mark."""
    assert found(mark(version=7), version=7) == mark(version=7)
    assert found(mark(version=7), version=6) is None


def test_a_digest_of_another_commit_does_not_count() -> None:
    assert found(mark(), odd={f"{USER}.digest": Txn(1, 1_000)}) is None


def test_parts_of_an_older_mark_do_not_count() -> None:
    """A foreign writer has replaced one of them."""
    assert found(mark(), odd={f"{USER}.mark.1": Txn(0, 999)}) is None
