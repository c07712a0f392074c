"""Options that are missing or wrong: one clear error that names the option."""

import pickle

import pytest

from sluicegate.writer_hooks import BadOption
from sluicegate.writer_hooks.options import SinkOptions
from sluicegate.writer_hooks.region import KafkaSettings

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
        ("file:/lake/a%20b", "file:///lake/a%20b"),
        ("/lake/a b", "file:///lake/a%20b"),
    ],
)
def test_the_registration_has_the_table_as_one_uri(given: str, told: str) -> None:
    region = SinkOptions.parse(GOOD | {"path": given}).region
    assert getattr(region.registration("i", None).body, "table", None) == told


def test_a_folder_of_another_machine_is_refused() -> None:
    with pytest.raises(BadOption, match="use three slashes for a folder of this machine"):
        SinkOptions.parse(GOOD | {"path": "file://store/lake/flights"})
    options = SinkOptions.parse(GOOD | {"path": "file:///lake/flights"})
    assert options.region.table == "file:///lake/flights"


def test_a_table_that_the_format_cannot_have_is_refused() -> None:
    with pytest.raises(BadOption, match=r"option table cannot be used: .*Use a local or mounted path"):
        SinkOptions.parse(GOOD | {"path": "hdfs://lake/flights"})
    assert (
        SinkOptions.parse(GOOD | {"path": "memory://flights", "format": "memory"}).table == "memory://flights"
    )


def test_an_option_that_the_format_lacks_is_named_as_the_job_gives_it() -> None:
    wrong = GOOD | {"path": "/lake/flights", "format": "delta", "table.Checkpoint": "off"}
    with pytest.raises(
        BadOption, match=r"option table\.checkpoint cannot be used: .*the option is checkpoints"
    ):
        SinkOptions.parse(wrong)


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
            "kafka.sasl.password": "secret",
            "queryname": "jfk",
        }
    )
    assert options.region.assignment.regions == ("EWR", "JFK")
    assert (options.region.assignment.number, options.region.assignment.after) == (4, 17)
    assert options.region.bounded
    assert options.region.commits_topic == "lake.commits"
    assert options.region.registration_timeout == 2.5
    assert options.table_options == (("uri", "sqlite:////lake/catalog.db"),)
    assert "secret" not in repr(options)
    assert pickle.loads(pickle.dumps(options)) == options, "it travels to the executors"  # noqa: S301


@pytest.mark.parametrize("name", ["stream", "region", "kafka.bootstrap.servers", "checkpointlocation"])
def test_missing(name: str) -> None:
    with pytest.raises(BadOption, match=rf"(?i)option {name} is missing"):
        SinkOptions.parse({key: value for key, value in GOOD.items() if key != name})


def test_missing_table() -> None:
    with pytest.raises(BadOption, match="option table is missing"):
        SinkOptions.parse({key: value for key, value in GOOD.items() if key != "path"})


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


def test_a_region_that_is_not_in_the_list_is_to_be_corrected() -> None:
    with pytest.raises(BadOption, match="correct the option region or the option regions"):
        SinkOptions.parse(GOOD | {"regions": "EWR,LGA"})


def test_several_regions_need_a_numbered_list() -> None:
    with pytest.raises(BadOption, match="option assignment is missing"):
        SinkOptions.parse(GOOD | {"regions": "EWR,JFK"})


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


def test_an_iceberg_table_without_its_catalog_is_refused_with_the_name_of_the_option() -> None:
    lacking = GOOD | {"format": "iceberg", "path": "/lake/t.db/t"}
    with pytest.raises(BadOption, match=r"needs the option uri.*Here, its name begins with table\."):
        SinkOptions.parse(lacking)
    assert SinkOptions.parse(lacking | {"table.uri": "sqlite:////lake/catalog.db"}).format == "iceberg"
