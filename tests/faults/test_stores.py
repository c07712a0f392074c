"""A sample of the fault campaign with tables in a real S3 server, and in a real cluster of HDFS."""

import asyncio
from pathlib import Path

import pytest
from hdfs_native import Client, WriteOptions

from sluicegate.cli.local.servers import EmbeddedHdfs
from sluicegate.failpoints.names import Failpoint
from tests.faults.rolling import Plan, roll
from tests.faults.scenes import Maker
from tests.faults.stores import fetch, mirror
from tests.faults.tables import create_table, kind_of, rows_told, tally
from tests.s3proxy import S3Proxy

pytestmark = [pytest.mark.kafka, pytest.mark.redis]

PLANS = [Plan(Failpoint.LAKE_PUT_BEFORE), Plan(Failpoint.LAKE_PUT_AFTER), Plan(Failpoint.PUBLISH_AFTER)]


@pytest.mark.s3
@pytest.mark.parametrize("lake", ["paimon", "delta"])
async def test_killed_around_the_put_the_table_is_exact(
    lake: str, make: Maker, s3proxy: S3Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, value in s3proxy.environment().items():
        monkeypatch.setenv(variable, value)
    assert await roll(await make(lake=lake, store=s3proxy.bucket), PLANS) == []


@pytest.mark.hdfs
@pytest.mark.parametrize("lake", ["paimon", "iceberg", "delta"])
async def test_killed_around_the_put_in_hdfs_the_table_is_exact(
    lake: str, make: Maker, hdfs: EmbeddedHdfs, tmp_path: Path
) -> None:
    where = await asyncio.to_thread(mirror, tmp_path / "mirror", hdfs)
    assert await roll(await make(lake=lake, store=where), PLANS) == []


@pytest.mark.hdfs
def test_a_mirror_is_equal_to_the_folder_of_the_cluster(
    hdfs: EmbeddedHdfs, unique: str, tmp_path: Path
) -> None:
    client, folder = Client(hdfs.uri), mirror(tmp_path / "mirror", hdfs) / unique

    def write(name: str, content: bytes) -> None:
        with client.create(f"/{unique}/{name}", WriteOptions(create_parent=True, overwrite=True)) as file:
            file.write(content)

    def there() -> dict[str, bytes]:
        fetch(folder)
        files = (each for each in folder.rglob("*") if each.is_file())
        return {str(each.relative_to(folder)): each.read_bytes() for each in files}

    assert there() == {}
    write("a/x", b"one")
    write("y", b"two")
    assert there() == {"a/x": b"one", "y": b"two"}
    write("y", b"three")
    client.delete(f"/{unique}/a/x")
    unfinished = client.create(f"/{unique}/z", WriteOptions(create_parent=True))
    unfinished.write(b"open")
    unfinished.hsync()
    assert there() == {"y": b"three"}
    unfinished.close()
    assert there() == {"y": b"three", "z": b"open"}


@pytest.mark.hdfs
@pytest.mark.parametrize("lake", ["paimon", "iceberg", "delta"])
def test_a_table_in_hdfs_is_judged_by_its_mirror(
    lake: str, hdfs: EmbeddedHdfs, unique: str, tmp_path: Path
) -> None:
    table = create_table(mirror(tmp_path / "mirror", hdfs) / unique, "flights", lake)
    kind_of(table).append(table, [1, 2])
    assert rows_told(table) == 2
    assert tally(table, [1, 2], "").exact
    found = tally(table, [2, 3], "")
    assert (found.missing, found.foreign) == ((3,), (1,))
