"""Manifest lists of other writers: fields are told by their ids, and nothing is lost."""

import json
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pytest

from sluicegate.lakes.avro import BadContainer
from sluicegate.lakes.iceberg.layout import Lists, UnknownMetadata
from sluicegate.lakes.iceberg.metadata import MAIN
from tests.contracts.lakes.harness import Stream
from tests.contracts.lakes.iceberg_lake import IcebergLake, local
from tests.lakes.iceberg.reading import avro, duck_rows, lines
from tests.lakes.outcomes import is_refused


@pytest.fixture
def lake(tmp_path: Path) -> IcebergLake:
    return IcebergLake(tmp_path)


def head_list(lake: IcebergLake) -> Path:
    head = lake.metadata.head(MAIN)
    assert head is not None
    return local(head["manifest-list"])


def rewrite(path: Path, change: Any) -> None:
    """Write a list again, after a change of its schema and records."""
    reader = fastavro.reader(BytesIO(path.read_bytes()))
    schema, records = json.loads(json.dumps(reader.writer_schema)), [dict(each) for each in reader]
    metadata = {key: value for key, value in reader.metadata.items() if not key.startswith("avro.")}
    schema.pop("__fastavro_parsed__", None)
    schema.pop("__named_schemas", None)
    change(schema, records)
    out = BytesIO()
    fastavro.writer(out, schema, records, codec="null", metadata=metadata)
    path.write_bytes(out.getvalue())


@pytest.mark.slow
def test_older_names_of_fields_are_understood(lake: IcebergLake) -> None:
    lake.foreign([100])

    def change(schema: dict[str, Any], records: list[dict[str, Any]]) -> None:
        for field in schema["fields"]:
            new = field["name"].replace("_files_count", "_data_files_count")
            for record in records:
                record[new] = record.pop(field["name"])
            field["name"] = new

    rewrite(head_list(lake), change)
    before = avro(str(head_list(lake)))
    assert "added_data_files_count" in before[0]
    stream = Stream(lake)
    stream.commit(1, [1])
    after = {line["manifest_path"]: line for line in lines(lake)}
    kept = after[before[0]["manifest_path"]]
    assert kept["added_files_count"] == before[0]["added_data_files_count"] == 1
    assert lake.ids() == [1, 100]
    assert duck_rows(lake, "id") == [(1,), (100,)]


@pytest.mark.slow
def test_a_field_of_the_future_is_not_lost_silently(lake: IcebergLake) -> None:
    lake.foreign([100])

    def change(schema: dict[str, Any], records: list[dict[str, Any]]) -> None:
        schema["fields"].append({"name": "new", "type": ["null", "long"], "default": None, "field-id": 599})
        for record in records:
            record["new"] = 5

    rewrite(head_list(lake), change)
    stream = Stream(lake)
    outcome = stream.publish(1, stream.head(1), [lake.event([1])])
    assert is_refused(outcome)
    assert "the field new" in outcome.reason
    assert lake.ids() == [100]


@pytest.mark.slow
@pytest.mark.parametrize("version", [2, 3])
def test_lines_are_the_same_after_reading_and_writing(lake: IcebergLake, version: int) -> None:
    for number in range(4):
        lake.foreign([number])
    lists = Lists(version, "deflate")
    found = lists.read(head_list(lake).read_bytes())
    again = lists.read(lists.file(found, {"format-version": str(version)}))
    assert [line.fields for line in again] == [line.fields for line in found]
    assert [line.encoded for line in again] == [line.encoded for line in found]


def test_what_is_no_list_is_refused() -> None:
    lists = Lists(2, "null")
    out = BytesIO()
    fastavro.writer(
        out, {"type": "record", "name": "r", "fields": [{"name": "a", "type": "int"}]}, [{"a": 1}]
    )
    with pytest.raises((BadContainer, UnknownMetadata)):
        lists.read(out.getvalue())
