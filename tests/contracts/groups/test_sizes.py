"""Sizes for the most tables that a stream may have."""

import json

from sluicegate.events.models import SnapshotRef, TableVersion
from sluicegate.lakes.iceberg.ancestry import vector_text

MOST = 500


def test_the_vector_of_500_tables_fits_a_property() -> None:
    """Names of 32 characters, snapshot ids and decisions of many digits: at most 32 kB."""
    vector = {
        f"table-{number:03d}-{'x' * 22}": TableVersion(
            decision=9_000_000 + number, snapshot=SnapshotRef(number, str(2**63 - 1 - number))
        )
        for number in range(MOST)
    }
    assert {len(name) for name in vector} == {32}
    text = vector_text(9_999_999, 2**63 - 1, vector)
    assert len(json.loads(text)["tables"]) == MOST
    assert len(text.encode()) <= 32 * 1024
