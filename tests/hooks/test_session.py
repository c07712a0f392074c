"""What attaching does to a session, and what it says about its settings."""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming import DataStreamWriter

import sluicegate.writer_hooks.spark.session
from sluicegate.writer_hooks import attach
from sluicegate.writer_hooks.spark.source import SluicegateSource

pytestmark = pytest.mark.spark

BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
RECORDS = "spark.sql.execution.arrow.maxRecordsPerBatch"


def _rows(session: SparkSession) -> DataStreamWriter:
    """Rows on their way to the format."""
    return session.readStream.format("rate").load().writeStream.format("sluicegate")


def test_settings_that_make_the_writer_fast(spark: SparkSession) -> None:
    assert str(spark.conf.get(BYTES)).startswith("2147483647")
    assert spark.conf.get(RECORDS) == "10000"


def test_users_settings_are_kept(spark: SparkSession) -> None:
    session = spark.newSession()
    session.conf.set(BYTES, "1048576")
    session.conf.set(RECORDS, "100")
    attach(session)
    attach(session)
    assert str(session.conf.get(BYTES)).startswith("1048576")


def test_a_thread_that_attaches_finds_the_format(spark: SparkSession, tmp_path: Path) -> None:
    def start(*, attached: bool) -> None:
        if attached:
            attach(spark)
        _rows(spark).option("checkpointLocation", str(tmp_path)).start().stop()

    with ThreadPoolExecutor() as threads, pytest.raises(Exception, match="DATA_SOURCE_NOT_FOUND"):
        threads.submit(start, attached=False).result()
    with ThreadPoolExecutor() as threads:
        threads.submit(start, attached=True).result()


def test_each_session_has_the_format_of_its_own(spark: SparkSession, tmp_path: Path) -> None:
    def start() -> None:
        session = spark.newSession()
        session.dataSource.register(SluicegateSource)
        attach(session)
        _rows(session).option("checkpointLocation", str(tmp_path)).start().stop()

    with ThreadPoolExecutor() as threads:
        threads.submit(start).result()


def test_another_python_of_the_workers_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    other = tmp_path / "python3"
    other.write_text("")
    other.chmod(0o700)
    with caplog.at_level("WARNING"):
        sluicegate.writer_hooks.spark.session._check_python(sys.executable)
        sluicegate.writer_hooks.spark.session._check_python("./not-unpacked-yet/bin/python")
        assert caplog.messages == []
        sluicegate.writer_hooks.spark.session._check_python(str(other))
    assert f"set PYSPARK_PYTHON={sys.executable}" in caplog.text
