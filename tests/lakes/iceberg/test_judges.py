"""Products that share no code with this one read what it committed: Iceberg's Java library, and DuckDB."""

from pathlib import Path
from urllib.parse import unquote_plus

import pytest

from sluicegate.lakes.port import Published
from tests.contracts.lakes.harness import Stream
from tests.contracts.lakes.iceberg_lake import IcebergLake
from tests.contracts.lakes.iceberg_objects import S3Folder, s3_folder
from tests.iceberg_java.java import IcebergJava, where
from tests.lakes.iceberg import rich
from tests.lakes.iceberg.reading import duck_rows

NUMBERS = range(24)


@pytest.fixture(params=[pytest.param(2, marks=pytest.mark.matrix), 3])
def version(request: pytest.FixtureRequest) -> int:
    number: int = request.param
    return number


def committed(folder: Path, version: int, name: str, objects: S3Folder | None = None) -> IcebergLake:
    """Return a table of two commits and of two files for each partition, or more."""
    lake = IcebergLake(folder, version, rich.RICH, rich.spec(name), objects=objects)
    stream = Stream(lake)
    for decision, part in enumerate((NUMBERS[:11], NUMBERS[11:]), 1):
        event = lake.write(rich.rows(part))
        stream.committer.check([event])
        outcome = stream.publish(decision, stream.head(decision), [event])
        assert isinstance(outcome, Published)
        stream.recorded = outcome.snapshot
    return lake


@pytest.mark.seam
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in ("name", "buckets", "times") else pytest.mark.matrix)
        for name in rich.PARTITIONS
    ],
)
def test_partitions_and_bounds_are_those_of_the_rows(
    tmp_path: Path, iceberg_java: IcebergJava, name: str, version: int
) -> None:
    lake = committed(tmp_path, version, name)
    files = iceberg_java.files(lake.metadata.location)
    assert sum(file["rows"] for file in files) == len(NUMBERS)
    for file in files:
        folder = file["path"].removeprefix(f"file://{lake.root}/data/").rpartition("/")[0]
        assert unquote_plus(folder) == unquote_plus(file["partition"])
        low, high = int(file["lower"]["id"]), int(file["upper"]["id"])
        assert 0 <= low <= high < len(NUMBERS)
    spread = iceberg_java.files(lake.metadata.location, where("eq", "id", 3))
    assert 0 < len(spread) < len(files), "the bounds leave no file out"


@pytest.mark.s3
@pytest.mark.parametrize("name", ["name", "times", "bytes"])
def test_names_of_partitions_are_keys_of_objects(
    request: pytest.FixtureRequest, tmp_path: Path, iceberg_java: IcebergJava, name: str, version: int
) -> None:
    """Their values have spaces, letters beyond ASCII, colons and bytes, which the names of files encode."""
    objects = s3_folder(request)
    lake = committed(tmp_path, version, name, objects)
    store = objects.server.environment()
    found = iceberg_java.read(lake.metadata.location, ["id"], store=store)
    assert sorted(int(row[0] or -1) for row in found) == list(NUMBERS)
    assert [number for (number,) in duck_rows(lake, "id")] == list(NUMBERS)
    assert any("%" in path.name for path in (lake.root / "data").rglob("*")) or name == "bytes"


def test_rows_keep_their_ids_when_manifests_are_merged(tmp_path: Path, iceberg_java: IcebergJava) -> None:
    lake = IcebergLake(tmp_path, 3, properties={"commit.manifest.min-count-to-merge": "4"})
    stream = Stream(lake)
    before: dict[str | None, list[str | None]] = {}
    for decision in range(1, 14):
        stream.commit(decision, [decision * 10, decision * 10 + 1])
        columns = ["id", "_row_id", "_last_updated_sequence_number"]
        rows = {row[0]: row[1:] for row in iceberg_java.read(lake.metadata.location, columns)}
        assert len(rows) == 2 * decision
        assert {key: rows[key] for key in before} == before
        assert sorted(int(row[0] or -1) for row in rows.values()) == list(range(2 * decision))
        assert {int(row[1] or -1) for row in rows.values()} == set(range(1, decision + 1))
        before = rows
