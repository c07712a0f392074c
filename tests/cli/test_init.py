"""`sluicegate init`: its file is used as it stands, its commands are typed as they are printed."""

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sluicegate.cli.local.servers import EmbeddedKafka
from sluicegate.cli.main import main
from sluicegate.coordinator.settings.model import load
from tests.integration.waiting import exit_status, wait_until

FILE = Path("sluicegate.toml")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Go to an empty folder, without a variable that names a settings file."""
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.chdir(empty)
    monkeypatch.delenv("SLUICEGATE_CONFIG", raising=False)
    return empty


def init(*options: str, table: str = "/lake/demo.db/flights") -> Result:
    return CliRunner().invoke(main, ["init", "--table", table, *options])


def commands(result: Result) -> list[list[str]]:
    """Return the commands that it prints, as a shell splits them."""
    assert result.exit_code == 0, result.output
    first, *lines = result.stdout.splitlines()
    assert first.endswith(" Next:")
    assert all(line.startswith("  sluicegate ") for line in lines)
    return [shlex.split(line) for line in lines]


def test_a_table_is_enough() -> None:
    result = init()
    first = (
        "sluicegate.toml is written: stream flights, table /lake/demo.db/flights, Kafka at 127.0.0.1:9092."
    )
    assert result.stdout.startswith(f"{first} Next:\n")
    assert commands(result) == [["sluicegate", *each.split()] for each in ("topics create", "check", "run")]
    settings = load(FILE, {})
    stream = settings.streams["flights"]
    assert (settings.kafka.bootstrap_servers, settings.redis) == ("127.0.0.1:9092", None)
    assert (stream.table, stream.regions, [*settings.streams]) == ("/lake/demo.db/flights", (), ["flights"])


def test_every_option_is_in_the_file(folder: Path) -> None:
    table, odd = 'warehouse/the "best" \'äß🛫\\.db/flights', "flights.of-2013"
    options = ["--stream", odd, "--region", "JFK", "--region", "EWR", "--kafka", "a:1,b:2"]
    assert init(*options, "--redis", "redis://cache:7/1", table=table).exit_code == 0
    settings = load(FILE, {})
    assert settings.redis is not None
    assert (settings.kafka.bootstrap_servers, settings.redis.shown) == ("a:1,b:2", "redis://cache:7/1")
    stream = settings.streams[odd]
    assert (stream.table, stream.regions) == (str(folder / table), ("JFK", "EWR"))


def test_a_format_and_its_options_are_in_the_file() -> None:
    options = ["--option", "uri=sqlite:////lake/catalog.db?a=b", "--option", 'catalog=a "b"\\']
    assert init("--format", "iceberg", *options, "--option", "identifier=db.flights").exit_code == 0
    stream = load(FILE, {}).streams["flights"]
    assert stream.format == "iceberg"
    assert {name: each.get_secret_value() for name, each in stream.options.items()} == {
        "uri": "sqlite:////lake/catalog.db?a=b",
        "catalog": 'a "b"\\',
        "identifier": "db.flights",
    }


def test_a_format_that_no_release_knows_writes_nothing() -> None:
    result = init("--format", "parquet")
    assert (result.exit_code, FILE.exists()) == (2, False)
    assert "'parquet' is no table format; this release knows delta, iceberg" in result.stderr


def test_a_file_is_never_changed_and_the_two_ways_out_work() -> None:
    assert init().exit_code == 0
    before = FILE.read_text(encoding="utf-8")
    result = init(table="/lake/demo.db/delays")
    assert (result.exit_code, FILE.read_text(encoding="utf-8")) == (2, before)
    assert result.stderr == (
        "Error: sluicegate.toml exists, and is not changed. Add the section [streams.delays] to it: all "
        "coordinators of a group need the same settings. Or name another file with --config, for another "
        "group: set another kafka.group_id and kafka.topic_prefix in it\n"
    )
    assert init("--config", "other.toml", table="/lake/demo.db/delays").exit_code == 0
    assert [*load(Path("other.toml"), {}).streams] == ["delays"]
    FILE.write_text(f'{before}\n[streams.delays]\ntable = "/lake/demo.db/delays"\n', encoding="utf-8")
    assert [*load(FILE, {}).streams] == ["flights", "delays"]


@pytest.mark.parametrize(
    ("options", "key"),
    [
        (["--kafka", "nowhere"], "kafka.bootstrap_servers"),
        (["--redis", "cache:1"], "redis.url"),
        (["--region", "a/b"], "streams.flights.regions.0"),
        (["--stream", "a/b"], "streams.a/b"),
        (["--table", "/lake/my table"], "streams.my table"),
        (["--table", "/lake/\udcff", "--stream", "s"], "streams.s.table"),
    ],
)
def test_options_that_no_settings_can_have_write_nothing(options: list[str], key: str) -> None:
    result = init(*options)
    first, problem = result.stderr.splitlines()
    assert (result.exit_code, FILE.exists()) == (2, False)
    assert first == "Error: sluicegate.toml is not written, as its settings could not be used:"
    assert problem.startswith(f"  {key}: ")


@contextmanager
def started(command: list[str], env: dict[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as stderr:
        process = subprocess.Popen(command, stderr=stderr, env=env)
        try:
            yield process
        finally:
            process.kill()
            process.wait()


@pytest.mark.kafka
@pytest.mark.parametrize("options", [[], ["--config", "my settings.toml"]])
def test_the_printed_commands_lead_to_a_coordinator_that_owns_the_stream(
    options: list[str], own_kafka: EmbeddedKafka, table: Path, tmp_path: Path
) -> None:
    create, check, run = commands(init(*options, "--kafka", own_kafka.bootstrap, table=str(table)))
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    created = subprocess.run(create, env=env, capture_output=True, text=True)
    assert (created.returncode, created.stdout.count("created  ")) == (0, 4), created.stderr
    checked = subprocess.run(check, env=env, capture_output=True, text=True)
    assert (checked.returncode, "PROBLEM" in checked.stdout) == (0, False), checked.stdout
    assert "OK       table of flights: " in checked.stdout
    log = tmp_path / "log"
    with started(run, {**env, "SLUICEGATE_HTTP__PORT": "0"}, log) as process:

        def streams() -> list[str]:
            lines = [
                json.loads(line)
                for line in log.read_text(encoding="utf-8").splitlines(keepends=True)
                if line.endswith("}\n")
            ]
            return [name for each in lines for name in each.get("streams", ())]

        assert wait_until(streams, by=process, log=log) == ["flights"]
        process.send_signal(signal.SIGTERM)
        assert exit_status(process, log) == 0
