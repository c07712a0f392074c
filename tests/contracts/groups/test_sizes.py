"""Sizes for the most tables that a stream may have."""

import json
import random
import uuid

from sluicegate.coordinator.core.state import Before, Decision, LogState
from sluicegate.coordinator.core.state_record import StateRecord
from sluicegate.coordinator.stream.state_records import decode_record, encode_record
from sluicegate.events.models import FurtherTable, KnownTable, SnapshotRef, StreamPolicy, TableVersion
from sluicegate.lakes.iceberg.ancestry import vector_text

MOST = 499
"""Beside the anchor."""
_DICE = random.Random(500)
TABLES = {
    f"table-{number:03d}-{'x' * 22}": KnownTable(
        terms=FurtherTable(
            identifier=f"warehouse.table_{number:03d}_{'x' * 22}",
            identity=str(uuid.UUID(int=_DICE.getrandbits(128), version=4)),
            location=f"s3://bucket/warehouse/table_{number:03d}_{'x' * 22}/data/",
            allowed_locations=(f"s3://bucket/warehouse/table_{number:03d}_{'x' * 22}/data/",),
        ),
        newest=TableVersion(
            decision=9_000_000 + number,
            snapshot=SnapshotRef(9_000_000 + number, str(_DICE.getrandbits(63))),
        ),
    )
    for number in range(MOST)
}
"""Names of 32 characters, random uuids and snapshot ids, decisions of seven digits."""


def test_the_vector_of_500_tables_fits_a_property() -> None:
    """At most 32 kB."""
    assert {len(name) for name in TABLES} == {32}
    text = vector_text(9_999_999, 2**63 - 1, {name: each.newest for name, each in TABLES.items()})
    assert len(json.loads(text)["tables"]) == MOST
    assert len(text.encode()) <= 32 * 1024


def test_the_state_of_500_tables_fits_a_record() -> None:
    """At most 64 kB compressed, while a decision that touches all of them is not resolved."""
    state = LogState(
        policy=StreamPolicy(number=7, tables={name: each.terms for name, each in TABLES.items()}),
        tables=TABLES,
        decided=9_999_999,
        unresolved=Decision(
            id=9_999_999,
            digest="d" * 64,
            offset=10**9,
            cut={},
            fallbacks={},
            parts=[10**9 - number for number in range(MOST, 0, -1)],
            files=MOST,
            parts_of={name: [10**9 - MOST + number] for number, name in enumerate(TABLES)},
            tables=TABLES,
            first_offset=10**9 - MOST,
            before=Before(regions={}, watermark=None, provisional=False, former=None),
        ),
    )
    record = StateRecord(stream="s", applied=10**9, low_water=10**9 - MOST, state=state)
    value = encode_record(record)
    assert len(value) <= 64 * 1024
    read = decode_record("s", value)
    assert isinstance(read, StateRecord)
    assert read.state == state
