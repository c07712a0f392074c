"""`sluicegate check` compares the cleaners of other products with files that wait for their commit."""

import time
from pathlib import Path

import pytest
from deltalake import DeltaTable

from sluicegate.coordinator.core.state import LogState
from sluicegate.coordinator.core.state_record import StateRecord, Waiting, encode_record
from sluicegate.lakes.delta.maintenance import interval_seconds
from tests.cli.deployment import Deployment, findings
from tests.contracts.lakes.delta_lake import DeltaLake
from tests.contracts.lakes.iceberg_lake import IcebergLake

pytestmark = pytest.mark.kafka
HOUR = 3_600
RETENTION = "delta.deletedFileRetentionDuration"


def cleaning(deployment: Deployment) -> tuple[str, str]:
    """Return verdict and detail of the check."""
    result = deployment.run("check")
    assert result.exit_code == 0, result.output
    return findings(result)["table of flights, cleaning"]


def waits(deployment: Deployment, hours: int | None) -> None:
    """Write a state record with a file that waits for so long, or with none."""
    since = round((time.time() - (hours or 0) * HOUR) * 1000)
    waiting = {} if hours is None else {"r1": Waiting(files=1, rows=1, since=since)}
    record = StateRecord(stream="flights", applied=0, low_water=0, state=LogState(), waiting=waiting)
    deployment.write_state((b"flights", encode_record(record)))


@pytest.fixture(params=["paimon", "iceberg", "delta"])
def lake(request: pytest.FixtureRequest, deployment: Deployment, tmp_path: Path) -> str:
    """Give the format of the stream's table."""
    name, stream = str(request.param), "SLUICEGATE_STREAMS__FLIGHTS__"
    deployment.env[f"{stream}FORMAT"] = name
    if name == "delta":
        deployment.env[f"{stream}TABLE"] = DeltaLake(tmp_path / "delta").location
    if name == "iceberg":
        iceberg = IcebergLake(tmp_path / "iceberg")
        deployment.env[f"{stream}TABLE"] = iceberg.location
        deployment.env[f"{stream}OPTIONS"] = f'{{"uri": "{iceberg.uri}"}}'
    deployment.create_topics()
    return name


AGES = {"paimon": 24, "iceberg": 72, "delta": 168}
"""Hours after which the cleaner of a format deletes."""


def test_the_defaults_of_all_formats_are_well(lake: str, deployment: Deployment) -> None:
    verdict, detail = cleaning(deployment)
    assert verdict == "OK"
    assert "spares files that are younger than" in detail


def test_a_longer_wait_than_the_cleaner_grants_is_a_warning(lake: str, deployment: Deployment) -> None:
    deployment.env["SLUICEGATE_STREAMS__FLIGHTS__LONGEST_WAIT"] = "14d"
    verdict, detail = cleaning(deployment)
    assert verdict == "WARNING"
    assert "it can delete files of pending checkpoints. To keep them, " in detail
    if lake != "delta":
        assert "give it the argument older_than with a time that is at least 336 hours ago" in detail


def test_files_that_wait_for_long_are_a_warning_until_they_are_committed(
    lake: str, deployment: Deployment
) -> None:
    waits(deployment, AGES[lake] // 2 - 1)
    assert cleaning(deployment)[0] == "OK"
    waits(deployment, AGES[lake] // 2 + 1)
    verdict, detail = cleaning(deployment)
    assert verdict == "WARNING"
    assert "it would delete them. Do not run it before they are committed, or " in detail
    assert "Why they wait: sluicegate status --stream flights" in detail
    waits(deployment, None)
    assert cleaning(deployment)[0] == "OK"


@pytest.mark.parametrize("lake", ["delta"], indirect=True)
def test_a_property_of_delta_is_followed(lake: str, deployment: Deployment) -> None:
    table = DeltaTable(deployment.settings.streams["flights"].table.removeprefix("file://"))
    table.alter.set_table_properties({RETENTION: "interval 2 hours"})
    verdict, detail = cleaning(deployment)
    assert verdict == "WARNING"
    assert f"VACUUM spares files that are younger than 2.0 h ({RETENTION})" in detail
    said = f"SET TBLPROPERTIES ('{RETENTION}' = 'interval 24 hours')"
    assert (
        f"set the property: ALTER TABLE delta.`{table.table_uri.rstrip('/').removeprefix('file://')}`"
        in detail
    )
    assert said in detail
    table.alter.set_table_properties({RETENTION: "interval 24 hours"})
    assert cleaning(deployment)[0] == "OK"


@pytest.mark.parametrize("lake", ["iceberg"], indirect=True)
def test_a_table_of_iceberg_may_forbid_cleaners(lake: str, deployment: Deployment, tmp_path: Path) -> None:
    shared = IcebergLake(tmp_path / "shared", properties={"gc.enabled": "false"})
    deployment.env["SLUICEGATE_STREAMS__FLIGHTS__TABLE"] = shared.location
    deployment.env["SLUICEGATE_STREAMS__FLIGHTS__OPTIONS"] = f'{{"uri": "{shared.uri}"}}'
    waits(deployment, 1_000)
    assert cleaning(deployment) == ("OK", "the table forbids that other products delete files")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("interval 1 week", 604_800),
        ("INTERVAL 168 HOURS", 604_800),
        ("7 days", 604_800),
        ("interval 1 day 2 hours", 93_600),
        ("interval 1 month", 0),
        ("soon", 0),
        ("interval 1 day and more", 0),
    ],
)
def test_intervals_of_delta(text: str, seconds: int) -> None:
    assert interval_seconds(text) == seconds
