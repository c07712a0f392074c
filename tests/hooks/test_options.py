"""Options of a sink: one clear error that names the option, and what each one does."""

import pickle
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from sluicegate.events.models import Assignment
from sluicegate.lakes import adapter
from sluicegate.lakes.file_options import Compression, FileOptions, SortColumn
from sluicegate.writer_hooks import BadOption
from sluicegate.writer_hooks.options import Backpressure, SinkOptions, Target, Work, targets_of, wrong_values
from sluicegate.writer_hooks.region import Attempt, KafkaSettings, Region
from sluicegate.writer_hooks.spark.preflight import table_troubles
from sluicegate.writer_hooks.writer import write_attempt

GOOD = {
    "stream": "flights",
    "region": "JFK",
    "path": "/lake/flights",
    "kafka.bootstrap.servers": "broker:9092",
    "checkpointlocation": "/checkpoints/jfk",
}


def test_defaults() -> None:
    options = SinkOptions.parse(GOOD)
    assert (options.table, options.format, options.event_time_column) == ("/lake/flights", "paimon", None)
    assert options.region.assignment.model_dump() == {"number": 0, "regions": ("JFK",), "after": 0}
    assert options.region.events_topic == "sluicegate.events"
    assert not options.region.bounded


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("/lake/flights/", "file:///lake/flights"),
        ("file:///lake/flights", "file:///lake/flights"),
        ("file:/lake/a%20b", "file:///lake/a%20b"),
        ("/lake/a b", "file:///lake/a%20b"),
    ],
)
def test_the_registration_has_the_table_as_one_uri(given: str, told: str) -> None:
    region = SinkOptions.parse(GOOD | {"path": given}).region
    assert getattr(region.registration("i", None).body, "table", None) == told


def test_everything_given() -> None:
    options = SinkOptions.parse(
        GOOD
        | {
            "Regions": "EWR, JFK",
            "assignment": "4",
            "assignment.after": "17",
            "bounded": "TRUE",
            "topic.prefix": "lake",
            "registration.timeout": "2.5",
            "format": "iceberg",
            "table.uri": "sqlite:////lake/catalog.db",
            "kafka.sasl.password": "known-word",
            "queryname": "jfk",
        }
    )
    assert options.region.assignment.regions == ("EWR", "JFK")
    assert (options.region.assignment.number, options.region.assignment.after) == (4, 17)
    assert options.region.bounded
    assert options.region.commits_topic == "lake.commits"
    assert options.region.registration_timeout == 2.5
    assert options.table_options == (("uri", "sqlite:////lake/catalog.db"),)
    assert "known-word" not in repr(options)
    assert pickle.loads(pickle.dumps(options)) == options, "it travels to the executors"  # noqa: S301


def test_a_task_that_uploads_itself_takes_work_and_its_limit_alone() -> None:
    work = GOOD | {"before.publish": "posixpath:join"}
    assert SinkOptions.parse(work).work == Work("posixpath:join", 3600.0)
    assert SinkOptions.parse(work | {"upload.timeout": "5"}).work == Work("posixpath:join", 5.0)
    asynchronous = SinkOptions.parse(work | {"upload": "async"})
    assert (asynchronous.work, asynchronous.uploads is not None) == (None, True)
    for wrong in (work | {"upload.threads": "2"}, GOOD | {"upload.timeout": "5"}):
        with pytest.raises(BadOption, match="is for asynchronous uploads"):
            SinkOptions.parse(wrong)


@pytest.mark.parametrize("name", ["stream", "region", "kafka.bootstrap.servers", "checkpointlocation"])
def test_missing(name: str) -> None:
    with pytest.raises(BadOption, match=rf"(?i)option {name} is missing"):
        SinkOptions.parse({key: value for key, value in GOOD.items() if key != name})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("stream", "a/b"),
        ("region", "-x"),
        ("regions", "EWR,LGA"),
        ("regions", "JFK,JFK"),
        ("assignment", "-1"),
        ("assignment", "\N{SUPERSCRIPT TWO}"),
        ("assignment.after", "last"),
        ("parents", "EWR:q:3"),
        ("bounded", "yes"),
        ("registration.timeout", "0"),
        ("registration.timeout", "nan"),
        ("publish.timeout", "soon"),
        ("message.max.bytes", "10"),
        ("table", "/somewhere/else"),
        ("kafka.bootstrap.servers", " "),
        ("kafka.bootstrap.servers", "broker"),
        ("kafka.bootstrap.servers", "one:9092,two:kafka"),
        ("kafka.bootstrap.servers", "kafka://broker:9092"),
        ("kafka.security.protocol", "TLS"),
        ("kafka.request.timeout.ms", "5s"),
        ("kafka.acks", "0"),
        ("regoin", "JFK"),
    ],
)
def test_wrong(name: str, value: str) -> None:
    with pytest.raises(BadOption, match=rf"option(s)? {name}"):
        SinkOptions.parse(GOOD | {name: value})


ICEBERG = {"format": "iceberg", "path": "/lake/t.db/t"}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"path": ""}, "option table is missing"),
        ({"path": "file://store/lake/flights"}, "use three slashes for a folder of this machine"),
        ({"path": "oss://lake/flights"}, r"option table cannot be used: .*Use a local or mounted path"),
        (
            {"format": "delta", "table.Checkpoint": "off"},
            r"option table\.checkpoint .*the option is checkpoints",
        ),
        ({"regions": "EWR,LGA"}, "correct the option region or the option regions"),
        ({"regions": "EWR,JFK"}, "option assignment is missing"),
        (ICEBERG, r"needs the option uri.*Here, its name begins with table\."),
    ],
)
def test_a_refusal_has_the_way_out(given: dict[str, str], told: str) -> None:
    with pytest.raises(BadOption, match=told):
        SinkOptions.parse({name: value for name, value in (GOOD | given).items() if value})


def test_tables_of_other_formats() -> None:
    memory = GOOD | {"path": "memory://flights", "format": "memory"}
    assert SinkOptions.parse(memory).table == "memory://flights"
    found = SinkOptions.parse(GOOD | ICEBERG | {"table.uri": "sqlite:////lake/catalog.db"})
    assert found.format == "iceberg"


def test_kafka_security_reaches_the_client() -> None:
    settings = KafkaSettings.from_options(
        {
            "kafka.bootstrap.servers": "broker:9093",
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "SCRAM-SHA-512",
            "kafka.sasl.username": "writer",
            "kafka.sasl.password": "secret",
        }
    )
    arguments = settings.client_options()
    assert arguments["sasl_mechanism"] == "SCRAM-SHA-512"
    assert arguments["sasl_plain_password"] == "secret"  # noqa: S105
    assert arguments["ssl_context"].check_hostname


def test_unreadable_tls_files_are_named() -> None:
    settings = KafkaSettings.from_options(
        {
            "kafka.bootstrap.servers": "broker:9093",
            "kafka.security.protocol": "SSL",
            "kafka.ssl.ca.location": "/absent/ca.pem",
        }
    )
    with pytest.raises(BadOption, match=r"kafka\.ssl"):
        settings.client_options()


def test_all_unknown_names_are_told_at_once_with_what_was_meant() -> None:
    with pytest.raises(BadOption) as refused:
        SinkOptions.parse(GOOD | {"regoin": "JFK", "checkpoint.location": "/c", "zzz": "1"})
    assert str(refused.value).startswith(
        "unknown options checkpoint.location (did you mean checkpointLocation?), "
        "regoin (did you mean region?), zzz; known are stream, "
    )


OPTIONS = {
    "stream": "flights",
    "region": "JFK",
    "path": "/lake/flights",
    "format": "delta",
    "kafka.bootstrap.servers": "broker:9092",
    "checkpointlocation": "/checkpoints/jfk",
}

REGION = Region(
    "flights", "JFK", KafkaSettings(bootstrap_servers="nowhere:1"), Assignment(number=0, regions=("JFK",))
)


def test_the_options_of_files() -> None:
    assert SinkOptions.parse(OPTIONS).files is None
    given = {
        "file.target.size": "128MiB",
        "file.Row.Group.Size": "1 gib",
        "file.open.partitions": "12",
        "file.sort": "Carrier, time hour DESC,dest asc",
        "file.compression": "ZSTD:3",
        "file.statistics": "Carrier, dest",
    }
    files = SinkOptions.parse(OPTIONS | given).files
    assert files == FileOptions(
        128 << 20,
        1 << 30,
        12,
        (
            SortColumn("Carrier"),
            SortColumn("time hour", descending=True, nulls_first=False),
            SortColumn("dest"),
        ),
        Compression("zstd", 3),
        ("Carrier", "dest"),
    )
    assert pickle.loads(pickle.dumps(files)) == files  # noqa: S301
    assert FileOptions.parse({"file.statistics": "All"}) == FileOptions(statistics="all")
    assert FileOptions.parse({"file.statistics": "none"}) == FileOptions(statistics=())


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("target.size", "128 megabytes", "must be a size such as 128MiB, from 64KiB to 1024GiB"),
        ("target.size", "1KiB", "must be a size such as 128MiB"),
        ("target.size", "-1", "must be a size such as 128MiB"),
        ("row.group.size", "2GiB", "from 64KiB to 1GiB"),
        ("open.partitions", "0", "must be a whole number from 1 to 10000"),
        ("open.partitions", "many", "must be a whole number from 1 to 10000"),
        ("sort", "a,,b", "must be a list of different columns"),
        ("sort", "a, a desc", "must be a list of different columns"),
        ("compression", "lzo", "must be one of zstd, gzip, snappy, lz4, uncompressed"),
        ("compression", "snappy:3", "zstd and gzip take a level after a colon"),
        ("compression", "zstd:23", "must have a level of zstd from 1 to 22"),
        ("compression", "gzip:", "must have a level of gzip from 1 to 9"),
        ("statistics", "a,", "must be all, none, or a list of columns"),
    ],
)
def test_a_wrong_value_is_refused_with_the_reason(name: str, value: str, told: str) -> None:
    (wrong,) = wrong_values(OPTIONS | {f"file.{name}": value})
    assert wrong.startswith(f"the option file.{name} must ")
    assert told in wrong


def test_all_wrong_values_are_named_and_so_is_an_unknown_option() -> None:
    given = {"file.target.size": "x", "file.sort": "", "file.target.sizes": "1MiB"}
    unknown, values = wrong_values(OPTIONS | given)
    assert "unknown option file.target.sizes (did you mean file.target.size?)" in unknown
    assert "file.target.size must" in values
    assert "file.sort must" in values
    with pytest.raises(BadOption, match=r"file\.target\.sizes"):
        SinkOptions.parse(OPTIONS | given)


def test_options_that_contradict_the_table_are_found_before_the_start(tmp_path: Path) -> None:
    DeltaTable.create(str(tmp_path), pa.schema([("id", pa.int64())]))
    options = OPTIONS | {"path": str(tmp_path), "file.sort": "colour", "file.statistics": "id"}
    (trouble,) = table_troubles(*targets_of(options))
    assert "the option file.sort names colour" in trouble
    # The column may come with the first rows.
    assert list(table_troubles(*targets_of(options | {"evolve": "add-columns"}))) == []
    assert list(table_troubles(*targets_of(options | {"file.sort": "id desc"}))) == []


def test_a_task_follows_the_options(tmp_path: Path) -> None:
    DeltaTable.create(str(tmp_path), pa.schema([("id", pa.int64())]))
    given = {"path": str(tmp_path), "file.sort": "id desc", "file.compression": "snappy"}
    options = SinkOptions.parse(OPTIONS | given)
    target = Target(adapter("delta"), options.table_ref(), None, 10**6, files=options.files)
    batch = pa.record_batch({"id": pa.array([2, 3, 1], pa.int64())})
    write_attempt(REGION, Attempt("q.0", 0, "p00000"), target, [batch])
    (path,) = tmp_path.glob("*.parquet")
    assert pq.read_table(path)["id"].to_pylist() == [3, 2, 1]
    assert pq.read_metadata(path).row_group(0).column(0).compression == "SNAPPY"


COUNT = "max.uncommitted.checkpoints"
AGE = "max.uncommitted.age"


def test_a_number_of_checkpoints_is_a_limit() -> None:
    limit = Backpressure.parse({COUNT: "2"})
    assert limit.excess({7: 0.0}, 1e9) is None
    assert limit.excess({7: 0.0, 8: 0.0}, 0.0) == (
        "not committed: 2 completed checkpoints, and max.uncommitted.checkpoints is 2"
    )


def test_an_age_is_a_limit_of_the_oldest() -> None:
    limit = Backpressure.parse({AGE: "60", "backpressure": "FAIL"})
    assert limit.reaction == "fail"
    assert limit.excess({}, 100.0) is None
    assert limit.excess({7: 40.0, 8: 90.0}, 100.0) is None
    found = limit.excess({7: 39.0, 8: 90.0}, 100.0)
    assert found == "checkpoint 7 is not committed after 61 s, and max.uncommitted.age is 60 s"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({COUNT: "0"}, "must be a whole number from 1"),
        ({AGE: "soon"}, "must be a number of seconds above 0"),
        ({AGE: "inf"}, "must be a number of seconds above 0"),
        ({"backpressure": "fail"}, f"needs a limit: set {COUNT} or {AGE} too"),
        ({COUNT: "1", "backpressure": "panic"}, "must be wait or fail"),
    ],
)
def test_a_wrong_limit_is_refused(options: dict[str, str], problem: str) -> None:
    with pytest.raises(BadOption, match=problem):
        Backpressure.parse(options)
