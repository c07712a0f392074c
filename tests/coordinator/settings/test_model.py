"""Settings come from file and environment, report all problems at once, and keep secrets to themselves."""

import re
import ssl
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from sluicegate.coordinator.settings.model import (
    KafkaSettings,
    Settings,
    SettingsError,
    StreamSettings,
    load,
    parse_bytes,
    parse_seconds,
    validate,
)
from sluicegate.coordinator.settings.sources import child, model_of
from sluicegate.kafka.topics import TopicRole

EXAMPLE = Path(__file__).parents[3] / "examples" / "sluicegate.toml"

MINIMAL = {
    "SLUICEGATE_KAFKA__BOOTSTRAP_SERVERS": "broker:9092",
    "SLUICEGATE_STREAMS__FLIGHTS__TABLE": "/data/flights",
}


def _file(folder: Path, text: str) -> Path:
    path = folder / "sluicegate.toml"
    path.write_text(text, encoding="utf-8")
    return path


def _problems(path: Path | None, env: dict[str, str]) -> dict[str, str]:
    with pytest.raises(SettingsError) as caught:
        load(path, env)
    assert str(caught.value) == "\n".join(caught.value.problems)
    return dict(problem.split(": ", 1) for problem in caught.value.problems)


def test_environment_alone_is_enough() -> None:
    settings = load(None, MINIMAL)
    stream = settings.streams["flights"]
    assert settings.kafka.bootstrap_servers == "broker:9092"
    assert settings.redis is None
    assert (stream.format, stream.commit_user, stream.partial) == ("paimon", "sluicegate-flights", "never")
    assert stream.allowed_locations == ("file:///data/flights",)
    assert settings.memory.body_budget == 256 * 1024 * 1024
    assert (settings.commit_threads, settings.http.port, settings.http.host) == (8, 8080, "127.0.0.1")


def test_environment_wins_over_the_file_key_by_key(tmp_path: Path) -> None:
    path = _file(
        tmp_path,
        """
        state_record_interval = "15m"
        table_check_interval = "5m"
        [kafka]
        bootstrap_servers = ["one:9092", "two:9092"]
        group_id = "file"
        [streams.flights]
        table = "/data/flights"
        """,
    )
    settings = load(path, {"SLUICEGATE_KAFKA__GROUP_ID": "env", "SLUICEGATE_HTTP__PORT": "0"})
    assert settings.kafka.bootstrap_servers == "one:9092,two:9092"
    assert settings.kafka.group_id == "env"
    assert settings.http.port == 0
    assert (settings.state_record_interval, settings.table_check_interval) == (900.0, 300.0)


def test_environment_finds_the_streams_and_options_of_the_file(tmp_path: Path) -> None:
    path = _file(
        tmp_path,
        """
        [kafka]
        bootstrap_servers = "one:9092"
        [streams.Flights-EU.options]
        "s3.secret-key" = ""
        """,
    )
    env = {
        "SLUICEGATE_STREAMS__FLIGHTS_EU__TABLE": "/data/eu",
        "SLUICEGATE_STREAMS__FLIGHTS_EU__OPTIONS__S3_SECRET_KEY": "hunter2",
        "SLUICEGATE_STREAMS__FLIGHTS_EU__ALLOWED_LOCATIONS": "/data/eu/parts, /data/eu, s3://bucket/eu",
    }
    stream = load(path, env).streams["Flights-EU"]
    assert stream.adapter_options() == {"s3.secret-key": "hunter2"}
    assert stream.allowed_locations == ("file:///data/eu", "file:///data/eu/parts", "s3://bucket/eu")


def test_options_may_be_json_and_dotted_tables(tmp_path: Path) -> None:
    path = _file(
        tmp_path,
        """
        [kafka]
        bootstrap_servers = "one:9092"
        [streams.flights]
        table = "/data/flights"
        options.s3.region = "eu"
        """,
    )
    env = {"SLUICEGATE_STREAMS__FLIGHTS__OPTIONS": '{"s3.secret-key": "hunter2"}'}
    options = load(path, env).streams["flights"].adapter_options()
    assert options == {"s3.region": "eu", "s3.secret-key": "hunter2"}


WRONG = """
    commit_threads = 0
    [kafka]
    bootstrap_servers = "no-port"
    [kafka.security]
    protocol = "SASL_SSL"
    [streams.flights]
    tabel = "/data/flights"
    partial = "sometimes"
    alignment_timeout = "0s"
    [streams."a/b"]
    table = "relative/path"
    [redis]
    url = "http://user:hunter2@host"
"""

WRONG_ENV = {
    "SLUICEGATE_HTTP__PORT": "high",
    "SLUICEGATE_LOG": "{broken",
    "SLUICEGATE_KAFKA_GROUP_ID": "one underscore too few",
}


def test_every_problem_is_reported_at_once_with_its_key(tmp_path: Path) -> None:
    problems = _problems(_file(tmp_path, WRONG), WRONG_ENV)
    assert problems.keys() == {
        "commit_threads",
        "kafka.bootstrap_servers",
        "kafka.security",
        "streams.flights.table",
        "streams.flights.tabel",
        "streams.flights.partial",
        "streams.flights.alignment_timeout",
        "streams.a/b",
        "streams.a/b.table",
        "redis.url",
        "http.port",
        "log",
        "kafka_group_id",
    }
    assert "host:port" in problems["kafka.bootstrap_servers"]
    assert "`username` and `password`" in problems["kafka.security"]
    assert "SLUICEGATE_STREAMS__FLIGHTS__TABLE" in problems["streams.flights.table"]
    assert "did you mean `table`?" in problems["streams.flights.tabel"]
    assert "'never' or 'allow'" in problems["streams.flights.partial"]
    assert "must be a duration above 0" in problems["streams.flights.alignment_timeout"]
    assert "absolute" in problems["streams.a/b.table"]
    assert problems["http.port"].endswith("(set by SLUICEGATE_HTTP__PORT)")
    assert "SLUICEGATE_LOG is not valid JSON" in problems["log"]
    assert "SLUICEGATE_KAFKA__" in problems["kafka_group_id"]
    assert "hunter2" not in str(problems)


def test_nothing_given_names_what_is_required() -> None:
    problems = _problems(None, {})
    assert problems.keys() == {"kafka.bootstrap_servers", "streams"}
    assert "[streams.NAME]" in problems["streams"]


@pytest.mark.parametrize(
    ("text", "says"), [("[kafka", "not valid TOML"), (None, "cannot be read")], ids=["broken", "missing"]
)
def test_file_that_cannot_be_read_is_named(tmp_path: Path, text: str | None, says: str) -> None:
    path = tmp_path / "missing.toml" if text is None else _file(tmp_path, text)
    problems = _problems(path, {})
    assert says in problems[str(path)]


def test_contradicting_variables_are_named() -> None:
    env = {**MINIMAL, "SLUICEGATE_COMMIT_THREADS": "4", "SLUICEGATE_COMMIT_THREADS__X": "1"}
    assert "SLUICEGATE_COMMIT_THREADS__X" in _problems(None, env)["commit_threads.x"]


def test_empty_and_foreign_variables_do_not_count() -> None:
    env = {**MINIMAL, "SLUICEGATE_REDIS__URL": "", "SLUICEGATE_TEST_KAFKA": "x:1", "OTHER": "x"}
    assert load(None, env) == load(None, MINIMAL)


def test_failpoints_are_off_and_unknown_ones_are_refused() -> None:
    required = {
        "SLUICEGATE_KAFKA__BOOTSTRAP_SERVERS": "k:9092",
        "SLUICEGATE_STREAMS__FLIGHTS__TABLE": "/tables/flights",
    }
    assert load(None, required).failpoints == ""
    given = load(None, {**required, "SLUICEGATE_FAILPOINTS": "publish.before=kill@2"})
    assert given.failpoints == "publish.before=kill@2"
    with pytest.raises(SettingsError, match=r"no failpoint 'publsh.before'; there are .*publish.before"):
        load(None, {**required, "SLUICEGATE_FAILPOINTS": "publsh.before=kill"})


def test_two_streams_may_not_commit_as_one() -> None:
    env = {**MINIMAL, "SLUICEGATE_STREAMS__OTHER__TABLE": "/data/flights/"}
    same = dict.fromkeys(("SLUICEGATE_STREAMS__FLIGHTS__COMMIT_USER",), "me")
    both = {**env, **same, "SLUICEGATE_STREAMS__OTHER__COMMIT_USER": "me"}
    assert load(None, env).streams["other"].commit_user == "sluicegate-other"
    assert "commit_user" in _problems(None, both)["streams"]


def test_secrets_are_not_shown() -> None:
    env = {
        **MINIMAL,
        "SLUICEGATE_KAFKA__SECURITY__PROTOCOL": "SASL_PLAINTEXT",
        "SLUICEGATE_KAFKA__SECURITY__USERNAME": "me",
        "SLUICEGATE_KAFKA__SECURITY__PASSWORD": "hunter2-kafka",
        "SLUICEGATE_KAFKA__SECURITY__KEY_PASSWORD": "hunter2-key",
        "SLUICEGATE_REDIS__URL": "rediss://me:hunter2%2Fredis@cache:7000/3",
        "SLUICEGATE_STREAMS__FLIGHTS__OPTIONS": '{"s3.secret-key": "hunter2-s3", "s3.region": "eu-hunter2"}',
        "SLUICEGATE_STREAMS__FLIGHTS__OPTIONS__HEADER__AUTHORIZATION": "Other hunter2-header",
    }
    settings = load(None, env)
    assert settings.redis is not None
    assert settings.redis.shown == "rediss://cache:7000/3"
    for shown in (repr(settings), str(settings), settings.model_dump_json(), str(settings.model_dump())):
        assert "hunter2" not in shown
    assert settings.secrets() == {
        "hunter2-kafka",
        "hunter2-key",
        "hunter2-s3",
        "Other hunter2-header",
        "hunter2%2Fredis",
        "hunter2/redis",
        "rediss://me:hunter2%2Fredis@cache:7000/3",
        "rediss://me:hunter2/redis@cache:7000/3",
    }
    options = settings.kafka.client_options()
    assert (options["sasl_plain_username"], options["sasl_plain_password"]) == ("me", "hunter2-kafka")


def _make_certificate(folder: Path) -> tuple[Path, Path]:
    certificate, key = folder / "client.pem", folder / "client.key"
    request = ["req", "-x509", "-newkey", "rsa:2048", "-subj", "/CN=test", "-days", "2"]
    files = ["-passout", "pass:hunter2", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(["openssl", *request, *files], check=True, capture_output=True)
    return certificate, key


@pytest.mark.slow
def test_tls_files_are_loaded_and_faults_name_their_key(tmp_path: Path) -> None:
    certificate, key = _make_certificate(tmp_path)
    security: dict[str, Any] = {
        "protocol": "SSL",
        "ca_file": certificate,
        "certificate_file": certificate,
        "key_file": key,
        "key_password": "hunter2",
    }
    kafka = KafkaSettings.model_validate({"bootstrap_servers": "b:9093", "security": security})
    context = kafka.client_options()["ssl_context"]
    assert isinstance(context, ssl.SSLContext)
    assert [each["subject"] for each in context.get_ca_certs()] == [((("commonName", "test"),),)]

    for change, says in (
        ({"key_password": "wrong"}, r"kafka\.security\.certificate_file: cannot be used"),
        ({"key_password": None}, r"kafka\.security\.certificate_file: cannot be used"),
        ({"ca_file": key}, r"kafka\.security\.ca_file: cannot be used"),
    ):
        wrong = {"bootstrap_servers": "b:9093", "security": {**security, **change}}
        with pytest.raises(SettingsError, match=says):
            KafkaSettings.model_validate(wrong).client_options()


def test_topics_follow_the_settings() -> None:
    kafka = KafkaSettings(bootstrap_servers="b:9092", topic_prefix="mine", partitions=3, retention="1h")
    specs = {spec.role: spec for spec in kafka.topic_specs()}
    assert specs[TopicRole.EVENTS].name == kafka.topic_names().events == "mine.events"
    assert specs[TopicRole.EVENTS].partitions == 3
    assert specs[TopicRole.COMMITS].settings["retention.ms"] == "3600000"
    assert specs[TopicRole.EVENTS].settings["retention.ms"] == "-1"


def test_policy_and_cadence_come_from_the_stream() -> None:
    plain = StreamSettings(table="s3://bucket/flights", max_consecutive_fallbacks=5)
    policy = plain.policy()
    assert (policy.partial, policy.max_consecutive_fallbacks, policy.max_failure_ratio) == ("never", 5, 1.0)
    assert (policy.allowed_locations, policy.regions) == (("s3://bucket/flights",), ())
    assert (policy.future_limit, plain.alignment_timeout) == (86_400_000, 10.0)
    stream = StreamSettings(
        partial="allow",
        table="/t",
        max_failure_ratio=0.4,
        future_limit="2h",
        regions=("EWR", "JFK"),
        commit_interval="1m",
        commit_max_files=500,
        commit_max_bytes="64MiB",
    )
    assert (stream.policy().max_failure_ratio, stream.policy().future_limit) == (0.4, 7_200_000)
    assert (stream.policy().partial, stream.policy().regions) == ("allow", ("EWR", "JFK"))
    cadence = (stream.commit_interval, stream.commit_max_files, stream.commit_max_bytes)
    assert cadence == (60.0, 500, 64 << 20)
    assert StreamSettings(table="/t", commit_interval=0).commit_interval == 0.0


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("max_failure_ratio", 1.1),
        ("max_failure_ratio", -0.1),
        ("regions", ("EWR", "EWR")),
        ("regions", ("E/R",)),
        ("commit_interval", "-1s"),
        ("commit_max_files", 0),
        ("commit_max_bytes", 0),
    ],
)
def test_limits_of_policy_and_cadence(key: str, value: object) -> None:
    with pytest.raises(ValidationError, match=key):
        StreamSettings(table="/t", **{key: value})


def test_the_replay_window_is_longer_than_the_grace_of_every_janitor() -> None:
    kafka = KafkaSettings(bootstrap_servers="b:9092")
    stream = StreamSettings(table="/t", janitor={"enabled": True, "grace": "2d"})
    assert Settings(kafka=kafka, streams={"s": stream}).replay_window == 30 * 86_400
    with pytest.raises(ValidationError, match="longer than the janitor's grace of stream s"):
        Settings(kafka=kafka, streams={"s": stream}, replay_window="2 days")


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        ({"table": "/t"}, True),
        ({"table": "s3a://b/t", "format": "delta"}, True),
        ({"table": "/t", "janitor": {"enabled": False}}, False),
        ({"table": "gs://b/t", "format": "iceberg"}, False),
        ({"table": "gs://b/t", "janitor": {"enabled": True}}, True),
        ({"table": "memory://t", "format": "memory"}, False),
    ],
)
def test_a_janitor_is_on_where_tests_prove_the_orphans(stream: dict[str, Any], *, expected: bool) -> None:
    assert StreamSettings(**stream).has_janitor is expected


def test_settings_made_directly_ignore_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA", '{"bootstrap_servers": "other:1"}')
    monkeypatch.setenv("COMMIT_THREADS", "3")
    settings = Settings(
        kafka=KafkaSettings(bootstrap_servers="b:9092"), streams={"s": StreamSettings(table="/data/s")}
    )
    assert settings.kafka.bootstrap_servers == "b:9092"
    assert settings.commit_threads == 8
    assert settings.streams["s"].commit_user == "sluicegate-s"


def _keys(model: type[BaseModel], path: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    found: set[tuple[str, ...]] = set()
    for name, field in model.model_fields.items():
        inner = model_of(field.annotation) or model_of(child(field.annotation, "x"))
        found |= _keys(inner, (*path, name)) if inner else {(*path, name)}
    return found


def test_example_shows_every_key_with_its_default() -> None:
    text = EXAMPLE.read_text(encoding="utf-8")
    # Commented settings are examples of what has no default; they must be valid all the same.
    full = re.sub(r"^# (?=\[|[\"a-z0-9._-]+\"? = )", "", text, flags=re.MULTILINE)
    given = tomllib.loads(full)
    # Both have keys of the adapter or the type.
    own = {("streams", "flights", "options"), ("streams", "flights", "listeners")}
    shown = {path for path in _paths(given) if path[:3] not in own}
    plain = {(path[0], *path[2:]) if path[0] == "streams" else path for path in shown}
    # A further table has a name of its own.
    plain = {(*path[:2], *path[3:]) if path[:2] == ("streams", "tables") else path for path in plain}
    assert plain == {
        each for each in _keys(Settings) if each[:2] not in {("streams", name) for _, _, name in own}
    }
    settings = load(EXAMPLE, {})
    required = {
        "SLUICEGATE_KAFKA__BOOTSTRAP_SERVERS": settings.kafka.bootstrap_servers,
        "SLUICEGATE_STREAMS__FLIGHTS__TABLE": settings.streams["flights"].table,
    }
    assert settings == load(None, required)


def _paths(table: dict[str, Any], path: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    found: set[tuple[str, ...]] = set()
    for key, value in table.items():
        found |= _paths(value, (*path, key)) if isinstance(value, dict) and value else {(*path, key)}
    return found


@pytest.mark.parametrize("owner", ["\x1b[2J", "a\nb", "a\u202eb", "x" * 201])
def test_an_owner_is_one_printable_line(owner: str) -> None:
    assert StreamSettings(table="/t", owner="x" * 200).owner == "x" * 200
    with pytest.raises(ValidationError):
        StreamSettings(table="/t", owner=owner)


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        (2, 2.0),
        (0.5, 0.5),
        ("2.5", 2.5),
        ("500ms", 0.5),
        ("30s", 30),
        ("15 m", 900),
        ("2h", 7200),
        ("7d", 604800),
    ],
)
def test_durations(given: object, seconds: float) -> None:
    assert parse_seconds(given) == seconds


@pytest.mark.parametrize(
    "given", [0, -1, "0s", "", "s", "5 weeks", "1m30s", True, None, float("inf"), float("nan"), "1e3"]
)
def test_what_is_no_duration(given: object) -> None:
    with pytest.raises(ValueError, match="must be a duration above 0"):
        parse_seconds(given)


@pytest.mark.parametrize(
    ("given", "size"), [(1, 1), ("10", 10), ("64KiB", 65536), ("1.5MiB", 1572864), ("2 GiB", 2 << 30)]
)
def test_sizes(given: object, size: int) -> None:
    assert parse_bytes(given) == size


@pytest.mark.parametrize("given", [0, 1.5, "1.5", "0.3KiB", "5MB", "", None, False, float("inf")])
def test_what_is_no_size(given: object) -> None:
    with pytest.raises(ValueError, match="must be a size above 0"):
        parse_bytes(given)


@pytest.mark.parametrize(("user", "refused"), [("one", True), ("two", False)])
def test_two_streams_share_a_further_table_under_users_of_their_own(user: str, refused: bool) -> None:
    def stream(name: str, user: str, **tables: str) -> dict[str, Any]:
        options = {"uri": "sqlite:////lake/catalog.db", "identifier": f"shop.{name}"}
        lake = {"format": "iceberg", "table": f"/lake/shop/{name}", "options": options}
        return {**lake, "commit_user": user, "tables": tables}

    streams = {
        "a": stream("orders", "one", items="shop.items"),
        "b": stream("bills", user, lines="shop.items"),
    }
    given = {"kafka": {"bootstrap_servers": "k:9092"}, "streams": streams}
    if refused:
        with pytest.raises(SettingsError, match="a and b commit to one table as one commit_user"):
            validate(given, {})
    else:
        assert validate(given, {}).streams["b"].commit_user == "two"
