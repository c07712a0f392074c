"""Features of tables: an allowlist, read again in every version."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from sluicegate.lakes import adapter
from sluicegate.lakes.delta.adapter import ADAPTER
from sluicegate.lakes.port import TableRefused
from tests.contracts.lakes.delta_lake import DeltaLake
from tests.contracts.lakes.harness import Stream, with_commits
from tests.lakes.delta.making import ID, Fields, HandMade, column, info, mapped, metadata, protocol, put
from tests.lakes.outcomes import is_refused

MAPPING = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "1"}


def refusal(location: Path) -> str:
    """Return the text with which both halves refuse a table."""
    table = ADAPTER.parse_table(str(location))
    with pytest.raises(TableRefused) as by_committer:
        ADAPTER.open_committer(table, "user")
    with pytest.raises(TableRefused) as by_writer:
        ADAPTER.open_writer(table, None)
    assert str(by_committer.value) == str(by_writer.value)
    return str(by_committer.value)


REFUSED: Sequence[tuple[Fields, Fields, str]] = (
    (protocol(reader=4), metadata(), "reader version 4"),
    (protocol(writer=8), metadata(), "writer version 8"),
    (protocol(["somethingNew"]), metadata(), "table feature somethingNew"),
    (protocol(["identityColumns"]), metadata(), "table feature identityColumns"),
    (protocol(["icebergCompatV1"]), metadata(), "table feature icebergCompatV1"),
    (protocol(["icebergCompatV2"]), metadata(), "table feature icebergCompatV2"),
    (protocol(["icebergCompatV3"]), metadata(), "table feature icebergCompatV3"),
    *(
        (protocol([name], [name]), metadata(), f"table feature {name} is not supported: a catalog takes the")
        for name in ("catalogManaged", "catalogOwned-preview", "coordinatedCommits-preview")
    ),
    (
        protocol(["inCommitTimestamp"]),
        metadata(
            properties={
                "delta.enableInCommitTimestamps": "true",
                "delta.coordinatedCommits.commitCoordinator-preview": "unity-catalog",
            }
        ),
        "commitCoordinator-preview = unity-catalog is not supported: a catalog takes the commits",
    ),
    (protocol(["deletionVectors"], ["readOnlyNew"]), metadata(), "table feature readOnlyNew"),
    (protocol(["materializePartitionColumns"]), metadata(), "materializePartitionColumns"),
    (protocol(["variantType"], ["variantType"]), metadata(), "table feature variantType"),
    (
        protocol(["checkConstraints"]),
        metadata(properties={"delta.constraints.positive": "id > 0"}),
        "delta.constraints.positive",
    ),
    (protocol(writer=3), metadata(properties={"delta.constraints.c": "id > 0"}), "delta.constraints.c"),
    (
        protocol(),
        metadata([column("id", delta_invariants='{"expression":{"expression":"id > 0"}}')]),
        "an invariant",
    ),
    (protocol(writer=4), metadata([column("id", delta_generationExpression="1")]), "a generation expression"),
    (protocol(writer=6), metadata([column("id", delta_identity_start=1)]), "identity values"),
    (
        protocol(),
        metadata(properties={"delta.setTransactionRetentionDuration": "interval 7 days"}),
        "delta.setTransactionRetentionDuration",
    ),
    (protocol(), metadata([mapped("id", 1)], properties=MAPPING), "needs the table feature columnMapping"),
    (protocol(reader=2, writer=5), metadata(properties=MAPPING), "lacks its physical name"),
    (protocol(), metadata([column("v", "variant")]), "type variant"),
    (protocol(), metadata([column("v", {"type": "array", "elementType": "void"})]), "type void"),
    (protocol(), metadata([column("v", {"type": "cube"})]), "no type of a column"),
    (protocol(), metadata([column("f", "double"), *ID], ["f"]), "partitioned by f"),
    (protocol(), metadata([column("f", "binary"), *ID], ["f"]), "partitioned by f"),
    (protocol(), metadata(ID, ["id"]), "no column beside"),
    (protocol(), metadata(ID, ["other"]), "lacks the partition columns"),
    (protocol(), metadata([column("id"), column("ID")]), "two columns of one name"),
    (
        protocol(),
        metadata([{**column("v", "string"), "metadata": {"__CHAR_VARCHAR_TYPE_STRING": "varchar(3)"}}]),
        "varchar",
    ),
    (protocol(), metadata(properties={"delta.parquet.compression.codec": "brotli"}), "codec = brotli"),
)


@pytest.mark.parametrize(("first", "second", "words"), REFUSED, ids=[each[2] for each in REFUSED])
def test_a_table_out_of_scope_is_refused_by_name(
    tmp_path: Path, first: Fields, second: Fields, words: str
) -> None:
    assert words in refusal(HandMade(tmp_path, first, second).root)


TAKEN: Sequence[tuple[str, Fields, Fields]] = (
    ("oldest", protocol(writer=1), metadata()),
    ("appendOnly", protocol(["appendOnly"]), metadata(properties={"delta.appendOnly": "true"})),
    ("no invariants", protocol(["invariants"]), metadata()),
    ("no constraints", protocol(["checkConstraints"]), metadata()),
    ("no generated columns", protocol(["generatedColumns"]), metadata()),
    ("legacy 6 without identity columns", protocol(reader=2, writer=6), metadata()),
    (
        "change data feed",
        protocol(["changeDataFeed"]),
        metadata(properties={"delta.enableChangeDataFeed": "true"}),
    ),
    ("deletion vectors", protocol(["deletionVectors"], ["deletionVectors"]), metadata()),
    ("v2Checkpoint", protocol(["v2Checkpoint"], ["v2Checkpoint"]), metadata()),
    (
        "timestampNtz",
        protocol(["timestampNtz"], ["timestampNtz"]),
        metadata([*ID, column("t", "timestamp_ntz")]),
    ),
    ("typeWidening", protocol(["typeWidening"], ["typeWidening"]), metadata()),
    ("vacuumProtocolCheck", protocol(["vacuumProtocolCheck"], ["vacuumProtocolCheck"]), metadata()),
    ("allowColumnDefaults", protocol(["allowColumnDefaults"]), metadata()),
    ("clustering", protocol(["clustering", "domainMetadata"]), metadata()),
    ("checkpointProtection", protocol(["checkpointProtection"]), metadata()),
    (
        "column mapping",
        protocol(["columnMapping"], ["columnMapping"]),
        metadata([mapped("id", 1)], properties=MAPPING),
    ),
    ("legacy column mapping", protocol(reader=2, writer=5), metadata([mapped("id", 1)], properties=MAPPING)),
    (
        "row tracking",
        protocol(["rowTracking", "domainMetadata"]),
        metadata(properties={"delta.enableRowTracking": "true"}),
    ),
)


@pytest.mark.parametrize(("name", "first", "second"), TAKEN, ids=[each[0] for each in TAKEN])
def test_a_table_in_scope_takes_a_commit(tmp_path: Path, name: str, first: Fields, second: Fields) -> None:
    lake = HandMade(tmp_path, first, second)
    Stream(lake).add(1, lake.event([1, 2]))


LATER: Sequence[tuple[str, Mapping[str, Any]]] = (
    ("delta.constraints.late", metadata(properties={"delta.constraints.late": "id > 0"})),
    ("table feature identityColumns", protocol(["identityColumns"])),
    ("setTransactionRetentionDuration", metadata(properties={"delta.setTransactionRetentionDuration": "1"})),
)


@pytest.mark.parametrize(("words", "action"), LATER, ids=[each[0] for each in LATER])
def test_a_feature_that_is_added_between_two_heads_is_noticed(
    lake: DeltaLake, words: str, action: Mapping[str, Any]
) -> None:
    stream = with_commits(lake, 1)
    event = lake.event([2])
    if "metaData" in action:
        action = {"metaData": {**action["metaData"], "id": stream.table}}
    put(lake.root, 2, info(), action)
    put(lake.root, 3, info())
    head = stream.head(2)
    outcome = stream.publish(2, head, [event])
    assert is_refused(outcome)
    assert words in outcome.reason


def test_options_that_ask_for_more_than_an_append_are_refused(tmp_path: Path) -> None:
    for name in ("upsert", "primary-key", "identifier-fields", "merge.keys", "write-mode"):
        with pytest.raises(TableRefused, match="only take appended rows"):
            ADAPTER.parse_table(str(tmp_path), {name: "id"})
    with pytest.raises(TableRefused, match="no option colour"):
        ADAPTER.parse_table(str(tmp_path), {"colour": "red"})
    with pytest.raises(TableRefused, match="neither on nor off"):
        ADAPTER.parse_table(str(tmp_path), {"checkpoints": "perhaps"})
    assert ADAPTER.parse_table(str(tmp_path), {"checkpoints": "off"}).options == {"checkpoints": "off"}


@pytest.mark.parametrize("user", ["", "a.digest", "a.mark.0"])
def test_a_commit_user_never_has_the_name_of_a_transaction_of_another_one(lake: DeltaLake, user: str) -> None:
    with pytest.raises(TableRefused, match="cannot be a commit user"):
        ADAPTER.open_committer(ADAPTER.parse_table(lake.location), user)


def test_the_format_is_found_by_its_name() -> None:
    assert adapter("delta") is ADAPTER
