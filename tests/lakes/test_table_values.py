"""Values of properties and events that no file can follow: the reason names them, and what fits."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from sluicegate.lakes.port import BadFiles, Published, TableRefused
from tests.contracts.lakes.delta_lake import DeltaLake
from tests.contracts.lakes.harness import Lake, Stream
from tests.contracts.lakes.iceberg_lake import IcebergLake
from tests.contracts.lakes.paimon_lake import PaimonLake

ICEBERG_CODEC = "write.parquet.compression-codec"
METRICS = "write.metadata.metrics"


@pytest.mark.slow
@pytest.mark.parametrize("codec", ["lz4_raw", "LZ4", "brotli", " snappy", "uncompressed"])
def test_a_codec_of_an_iceberg_table_is_followed(tmp_path: Path, codec: str) -> None:
    follows(IcebergLake(tmp_path, properties={ICEBERG_CODEC: codec}))


@pytest.mark.parametrize(
    ("kind", "codec"),
    [
        *(("parquet", codec) for codec in ("lz4_raw", "LZ4", "none", "uncompressed", "brotli")),
        *(("orc", codec) for codec in ("none", "zlib", "lz4", "ZSTD")),
        *(("avro", codec) for codec in ("none", "deflate", "zstd", "null")),
    ],
)
def test_a_codec_of_a_paimon_table_is_followed(tmp_path: Path, kind: str, codec: str) -> None:
    follows(PaimonLake(tmp_path, options={"file.format": kind, "file.compression": codec}))


def follows(lake: Lake) -> None:
    stream = Stream(lake)
    assert isinstance(stream.publish(1, stream.head(1), [lake.event([1])]), Published)
    assert lake.ids() == [1]


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({ICEBERG_CODEC: "bz2"}, f"{ICEBERG_CODEC} = bz2 is not supported; use zstd"),
        ({ICEBERG_CODEC: "lzo"}, f"{ICEBERG_CODEC} = lzo is not supported; use zstd"),
        ({ICEBERG_CODEC: ""}, f"{ICEBERG_CODEC} =  is not supported; use zstd"),
        ({f"{METRICS}.default": "some"}, f"{METRICS}.default = some is no mode of statistics"),
        ({f"{METRICS}.column.id": "truncate(0)"}, f"{METRICS}.column.id = truncate(0) is no mode"),
    ],
)
def test_a_property_of_an_iceberg_table_is_named(
    tmp_path: Path, properties: Mapping[str, str], reason: str
) -> None:
    lake = IcebergLake(tmp_path, properties=properties)
    with pytest.raises(TableRefused) as raised:
        lake.event([1])
    assert reason in str(raised.value)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"file.compression": "bz2"}, "file.compression = bz2 of the table is not supported for parquet"),
        ({"file.compression": ""}, "file.compression =  of the table is not supported for parquet"),
        (
            {"file.format": "orc", "file.compression": "gzip"},
            "file.compression = gzip of the table is not supported for orc files. Set it to one of zstd",
        ),
        ({"file.format": "avro", "file.compression": "lz4"}, "not supported for avro files"),
        ({"file.compression.zstd-level": "x"}, "file.compression.zstd-level = x of the table is no level"),
        ({"file.compression.zstd-level": "23"}, "Set it to a number from 1 to 22"),
        ({"metadata.stats-mode": "some"}, "metadata.stats-mode = some of the table is no mode of statistics"),
    ],
)
def test_an_option_of_a_paimon_table_is_named(
    tmp_path: Path, options: Mapping[str, str], reason: str
) -> None:
    lake = PaimonLake(tmp_path, options=options)
    with pytest.raises(TableRefused) as raised:
        lake.event([1])
    assert reason in str(raised.value)


@pytest.mark.parametrize("bare", [False, True], ids=["described", "bare"])
@pytest.mark.parametrize("kind", [PaimonLake, DeltaLake, IcebergLake])
def test_a_partition_spec_that_the_table_does_not_have_is_refused(
    tmp_path: Path, kind: type[PaimonLake | DeltaLake | IcebergLake], bare: bool
) -> None:
    lake = kind(tmp_path)
    event = lake.event([1])
    files = [each.model_copy(update={"metadata": b""}) if bare else each for each in event.files]
    event = event.model_copy(update={"spec_id": 99, "files": tuple(files)})
    with pytest.raises(BadFiles, match="partition spec 99"):
        Stream(lake).committer.check([event])
