"""Settings, and the tables for which they make no sense: each is refused with a way out."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pydantic import ValidationError
from pyiceberg.transforms import MonthTransform

from sluicegate.lakes.capabilities import DescribesPartitions, PartitionField, PartitionLayout
from sluicegate.listeners.mark_done.listener import check_layout, read_layout
from sluicegate.listeners.mark_done.options import MarkDoneOptions
from sluicegate.listeners.port import ListenerRefused
from tests.contracts.lakes.iceberg_lake import IcebergLake
from tests.contracts.lakes.paimon_lake import PaimonLake
from tests.lakes.delta import making
from tests.lakes.iceberg import rich
from tests.listeners.mark_done.conftest import Monthly
from tests.listeners.mark_done.driving import stream_of

pytestmark = pytest.mark.slow

EVENT = {"actions": ["mark-event"]}


def options(**values: Any) -> MarkDoneOptions:
    return MarkDoneOptions.model_validate({**EVENT, **values})


def refused(values: dict[str, Any], layout: PartitionLayout) -> str:
    with pytest.raises(ListenerRefused) as caught:
        check_layout(options(**values), layout)
    return str(caught.value)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"actions": []}, "at least 1 item"),
        ({"actions": ["mark-event", "mark-event"]}, "actions has one twice"),
        ({"actions": ["email"]}, "success-file"),
        ({"actions": ["done-partition"]}, "success-file"),
        ({"trigger": "processing-time"}, 'needs idle_time, such as idle_time = "1 h"'),
        ({"idle_time": "1 h"}, "idle_time belongs to the trigger processing-time"),
        ({"trigger": "processing-time", "idle_time": "1 h", "delay": "1 h"}, "Set idle_time instead"),
        ({"delay": "1 month"}, "has no fixed length"),
        ({"delay": "soon"}, "is no length of time"),
        ({"interval": "1 M"}, "is no length of time"),
        ({"time_zone": "Mars/Olympus"}, "is no time zone of this machine"),
        ({"timestamp_formatter": "QQ"}, "have no meaning"),
        ({"timestamp_formatter": "MM-dd"}, "has no year. Write it as yyyy"),
        ({"actions": ["http-report"]}, "needs http_url"),
        ({"http_url": "http://x"}, "actions lacks http-report"),
        ({"actions": ["http-report"], "http_url": "ftp://x"}, "must be a URL such as https://"),
        ({"actions": ["custom"]}, "needs custom"),
        ({"actions": ["custom"], "custom": "module"}, "Write package.module:function"),
        ({"max_open_partitions": 15_001}, "less than or equal to 15000"),
        ({"unknown": 1}, "Extra inputs are not permitted"),
    ],
)
def test_settings_that_make_no_sense(values: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError) as caught:
        options(**values)
    assert reason in str(caught.value)


def test_each_format_describes_its_partitions(monthly: Monthly) -> None:
    maintenance = monthly.stream.adapter.open_maintenance(monthly.stream.table)
    assert isinstance(maintenance, DescribesPartitions)
    found = maintenance.partition_layout()
    assert found.fields == (PartitionField("origin", "identity"),)
    assert found.no_folder is None


@pytest.mark.parametrize("value", ["2013-01", "a b", "ä/ö=%", "x" * 200, "..", "a:b*c?"])
def test_the_folder_is_the_one_of_the_writer(monthly: Monthly, value: str) -> None:
    writer = monthly.stream.adapter.open_writer(monthly.stream.table, None)
    (batch,) = pa.table({"id": [1], "origin": [value], "at": pa.array([0], pa.timestamp("ms"))}).to_batches()
    writer.write(batch)
    (file,) = writer.finish()
    folder = read_layout(monthly.stream).folder(file.partition)
    inside = file.path.removeprefix(f"{folder}/")
    assert inside != file.path
    assert inside.count("/") == (1 if monthly.stream.format == "paimon" else 0)


# --- tables ---------------------------------------------------------------------------------------


def layout_of(lake: IcebergLake) -> PartitionLayout:
    return read_layout(
        stream_of("iceberg", lake.location, {**(lake.options or {}), "identifier": "db.numbers"})
    )


def iceberg(folder: Path, name: str) -> IcebergLake:
    return IcebergLake(folder, 2, rich.RICH, rich.spec(name))


def test_transforms_of_iceberg_are_known_with_their_zones(tmp_path: Path) -> None:
    found = {
        name: layout_of(iceberg(tmp_path / str(number), name)).fields
        for number, name in enumerate(("year", "day", "hour", "buckets", "void"))
    }
    assert found == {
        "year": (PartitionField("p0_at", "year"), PartitionField("p1_day", "month")),
        "day": (PartitionField("p0_instant", "day", True),),
        "hour": (PartitionField("p0_at", "hour"), PartitionField("p1_on", "identity")),
        "buckets": (
            PartitionField("p0_id", "opaque"),
            PartitionField("p1_name", "opaque"),
            PartitionField("p2_instant", "opaque", True),
        ),
        "void": (PartitionField("p0_name", "opaque"), PartitionField("p1_on", "identity")),
    }


def test_a_spec_that_was_replaced_is_known_too(tmp_path: Path) -> None:
    lake = iceberg(tmp_path, "day")
    with lake.table.update_spec() as update:
        update.remove_field("p0_instant")
        update.add_field("at", MonthTransform(), "at_month")
    assert layout_of(lake).fields == (
        PartitionField("at_month", "month"),
        PartitionField("p0_instant", "day", True),
    )


def test_a_success_file_of_a_hidden_transform_is_refused(tmp_path: Path) -> None:
    layout = layout_of(iceberg(tmp_path, "day"))
    text = refused({"actions": ["success-file"]}, layout)
    assert "p0_instant is a hidden transform" in text
    assert "Use the actions mark-event, http-report or custom" in text
    check_layout(options(), layout)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("write.object-storage.enabled", "true"),
        ("write.location-provider.impl", "com.example.Provider"),
        ("write.py-location-provider.impl", "example.Provider"),
    ],
)
def test_a_success_file_without_a_folder_for_each_partition_is_refused(
    tmp_path: Path, name: str, value: str
) -> None:
    lake = iceberg(tmp_path, "name")
    lake.edit(lambda fields: fields["properties"].update({name: value}))
    assert name in refused({"actions": ["success-file"], "interval": "1 d"}, layout_of(lake))


@pytest.mark.parametrize(
    ("columns", "properties"),
    [
        ((making.mapped("id", 1), making.mapped("dt", 2, "string")), {"delta.columnMapping.mode": "name"}),
        ((making.column("id"), making.column("dt", "string")), {"delta.randomizeFilePrefixes": "true"}),
    ],
)
def test_a_success_file_of_a_delta_table_with_random_folders_is_refused(
    tmp_path: Path, columns: tuple[dict[str, Any], ...], properties: dict[str, str]
) -> None:
    said = making.metadata(columns, ["dt"], properties)
    lake = making.HandMade(tmp_path, making.protocol(reader=2, writer=5), said)
    layout = read_layout(stream_of("delta", lake.location))
    assert "random folders" in refused({"actions": ["success-file"], "interval": "1 d"}, layout)


def test_a_date_of_paimon_is_a_number_of_days_unless_the_table_says_otherwise(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("dt", pa.date32())])
    old = PaimonLake(tmp_path / "old", schema, ["dt"])
    new = PaimonLake(tmp_path / "new", schema, ["dt"], {"partition.legacy-name": "false"})
    found = [read_layout(stream_of("paimon", lake.location)).fields for lake in (old, new)]
    assert found == [(PartitionField("dt", "days"),), (PartitionField("dt", "identity"),)]
    (batch,) = pa.table({"id": [1], "dt": pa.array([15_706], pa.date32())}).to_batches()
    assert [lake.write(batch).files[0].partition for lake in (old, new)] == [
        {"dt": "15706"},
        {"dt": "2013-01-01"},
    ]


# --- settings and tables --------------------------------------------------------------------------


def layout(*fields: PartitionField) -> PartitionLayout:
    return PartitionLayout(fields, None, None, lambda _: "")  # type: ignore[arg-type]


DT = PartitionField("dt", "identity")
CITY = PartitionField("city", "identity")
BUCKET = PartitionField("id_bucket", "opaque")
MONTH = PartitionField("ts_month", "month", True)
LOCAL = PartitionField("at_month", "month")
DAYS = PartitionField("d", "days")


@pytest.mark.parametrize(
    ("values", "fields", "reason"),
    [
        ({}, (), "the table has no partitions"),
        ({}, (DT,), "Set interval"),
        ({"timestamp_pattern": "$dt"}, (DT,), "Set interval"),
        ({"timestamp_pattern": "$day", "interval": "1 d"}, (DT,), "it has dt. Correct timestamp_pattern"),
        ({"timestamp_pattern": "2013-01-01", "interval": "1 d"}, (DT,), "Use one of $dt"),
        ({"timestamp_pattern": "$dt", "time_field": "dt", "interval": "1 d"}, (DT,), "Remove one"),
        (
            {"interval": "1 d"},
            (DT, CITY),
            "dt, city could have the time. Set timestamp_pattern, or time_field",
        ),
        ({"interval": "1 d", "time_field": "x"}, (DT,), "it has dt. Correct time_field"),
        ({"time_field": "id_bucket"}, (DT, BUCKET), "Name another one"),
        ({}, (BUCKET,), "have no time. Partition the table by a time"),
        ({"interval": "1 d"}, (MONTH,), "Remove interval and timestamp_formatter"),
        ({"time_zone": "Europe/Berlin"}, (MONTH,), "Remove time_zone"),
        ({}, (MONTH, LOCAL), "ts_month, at_month could have the time"),
        (
            {"trigger": "processing-time", "idle_time": "1 h", "timestamp_formatter": "yyyy"},
            (DT,),
            "Set both, or none",
        ),
    ],
)
def test_settings_that_do_not_fit_a_table(
    values: dict[str, Any], fields: tuple[PartitionField, ...], reason: str
) -> None:
    assert reason in refused(values, layout(*fields))


@pytest.mark.parametrize(
    ("values", "fields"),
    [
        ({"interval": "1 d"}, (DT,)),
        ({"interval": "1 d", "time_field": "dt"}, (DT, CITY, BUCKET)),
        ({"timestamp_pattern": "$dt", "interval": "1 d"}, (DT, CITY)),
        ({}, (CITY, MONTH, BUCKET)),
        ({"time_zone": "Europe/Berlin"}, (LOCAL,)),
        ({"time_field": "at_month"}, (MONTH, LOCAL)),
        ({}, (DAYS, CITY)),
        ({"trigger": "processing-time", "idle_time": "1 h"}, (DT, CITY)),
        ({"trigger": "processing-time", "idle_time": "1 h"}, (BUCKET,)),
        ({"trigger": "processing-time", "idle_time": "1 h"}, (MONTH,)),
    ],
)
def test_settings_that_fit_a_table(values: dict[str, Any], fields: tuple[PartitionField, ...]) -> None:
    check_layout(options(**values), layout(*fields))
