"""What attaching does to a session, and what it says about its settings."""

import logging
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import sluicegate.writer_hooks.spark.session
from sluicegate.writer_hooks import HookError, attach

pytestmark = pytest.mark.spark

BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
RECORDS = "spark.sql.execution.arrow.maxRecordsPerBatch"


def test_settings_that_make_the_writer_fast(spark: SparkSession) -> None:
    assert str(spark.conf.get(BYTES)).startswith("2147483647")
    assert spark.conf.get(RECORDS) == "10000"


def test_users_settings_are_kept_and_named(spark: SparkSession, caplog: pytest.LogCaptureFixture) -> None:
    session = spark.newSession()
    session.conf.set(BYTES, "1048576")
    session.conf.set(RECORDS, "100")
    with caplog.at_level(logging.WARNING, logger="sluicegate"):
        attach(session)
        attach(session)
    said = [message for message in caplog.messages if " is set to " in message]
    assert len(said) == 2, "the second call does nothing"
    assert BYTES in said[0]
    assert "1048576" in said[0]
    assert f"{RECORDS} is set to 100" in said[1]
    assert str(session.conf.get(BYTES)).startswith("1048576")


def test_source_registered_by_hand_is_noticed(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its regions would send no heartbeats, and what is registered cannot be replaced."""
    monkeypatch.setattr(sluicegate.writer_hooks.spark.session, "_attached", {})
    with pytest.raises(HookError, match=r"call attach\(spark\) instead"):
        attach(spark.newSession())


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
