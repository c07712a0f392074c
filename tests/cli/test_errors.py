"""Mistakes that a user can correct end with exit status 2 and a message, never with a traceback."""

import os
import pty
import socket
import subprocess
import sys
from typing import Any, Final

import click
import pytest
from aiokafka.errors import GroupAuthorizationFailedError, KafkaError, NotCoordinatorForGroupError
from click.testing import CliRunner

from sluicegate.cli.errors import UserError, as_user_errors
from sluicegate.cli.main import main
from sluicegate.cli.options import parse_timeout, require_stream
from sluicegate.cli.status import _ago
from sluicegate.cli.wait import _parse_time
from sluicegate.coordinator.settings.model import Settings
from tests.cli.deployment import Deployment

COMMANDS = [
    ("status",),
    ("region", "remove", "--stream", "flights", "--region", "r"),
    ("region", "reset", "--stream", "flights", "--region", "r", "--checkpoint-location", "/checkpoints/r"),
    ("stream", "resume", "--stream", "flights"),
    ("topics", "create"),
]


@pytest.mark.parametrize("arguments", COMMANDS, ids=[" ".join(each[:2]) for each in COMMANDS])
def test_kafka_that_is_away(nobody: Deployment, arguments: tuple[str, ...]) -> None:
    result = nobody.run(*arguments)
    servers = nobody.settings.kafka.bootstrap_servers
    assert result.exit_code == 2
    assert result.stdout == ""
    # A slow machine gets the note of a longer wait before.
    *_, last = result.stderr.splitlines()
    assert last.startswith(f"Error: Kafka at {servers} does not answer; check kafka.bootstrap_servers")


@pytest.mark.slow
def test_a_wait_for_kafka_is_noted_before_it_ends(nobody: Deployment) -> None:
    with socket.create_server(("127.0.0.1", 0)) as hung:
        servers = f"127.0.0.1:{hung.getsockname()[1]}"
        found = nobody.run(
            "status", SLUICEGATE_KAFKA__BOOTSTRAP_SERVERS=servers, SLUICEGATE_KAFKA__REQUEST_TIMEOUT="4"
        )
    note, error = found.stderr.splitlines()
    assert note.startswith(f"note: Kafka at {servers} does not answer. The command waits for it up to 4 s")
    assert error.startswith(f"Error: Kafka at {servers} does not answer")


def test_an_error_that_passes_by_itself_is_no_refusal(nobody: Deployment) -> None:
    with pytest.raises(UserError, match="does not answer"), as_user_errors(nobody.settings):
        raise NotCoordinatorForGroupError
    with pytest.raises(UserError, match="does not answer"), as_user_errors(nobody.settings):
        raise KafkaError("Unable to get cluster metadata over all known brokers")
    # Nobody answers the question for the permissions that are missing.
    advice = "check kafka.security and the permissions"
    with pytest.raises(UserError, match=advice), as_user_errors(nobody.settings):
        raise GroupAuthorizationFailedError


@pytest.mark.parametrize("arguments", [("run",), ("check",), *COMMANDS], ids=lambda each: " ".join(each[:2]))
def test_settings_that_cannot_be_used(nobody: Deployment, arguments: tuple[str, ...]) -> None:
    result = nobody.run(*arguments, SLUICEGATE_HTTP__PORT="x", SLUICEGATE_STREAMS__FLIGHTS__PARTIAL="often")
    assert result.exit_code == 2
    assert result.stdout == ""
    first, *problems = result.stderr.splitlines()
    assert first == "Error: the settings cannot be used:"
    assert [problem.split(":")[0] for problem in problems] == ["  http.port", "  streams.flights.partial"]


def test_file_that_is_not_there_is_named() -> None:
    result = CliRunner().invoke(main, ["status", "--config", "/nowhere/sluicegate.toml"])
    assert result.exit_code == 2
    assert "/nowhere/sluicegate.toml: cannot be read" in result.stderr


def test_the_file_in_the_current_folder_is_read_when_none_is_named(
    nobody: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(nobody.config.parent)
    result = CliRunner().invoke(main, ["status"])
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: no --config given, and there is no ./sluicegate.toml here; ")
    servers = nobody.settings.kafka.bootstrap_servers
    nobody.config.rename("sluicegate.toml")
    result = CliRunner().invoke(main, ["status"])
    assert result.stderr.startswith(f"Error: Kafka at {servers} does not answer")


@pytest.mark.slow
def test_version_and_help_work_in_a_process_of_their_own() -> None:
    program = "from sluicegate.cli.main import main; main(prog_name='sluicegate')"
    python = [sys.executable, "-c", program]
    shown = [
        subprocess.run([*python, flag], capture_output=True, text=True, check=True).stdout
        for flag in ("--version", "--help")
    ]
    assert shown[0].startswith("sluicegate, version ")
    for command in ("check", "commit", "demo", "region", "run", "status", "stream", "topics"):
        assert f"\n  {command} " in shown[1]


NONE: Any = None


@pytest.mark.parametrize(
    ("text", "millis"),
    [
        ("2013-02-01T00:00:00Z", 1_359_676_800_000),
        ("2013-02-01T00:00:00", 1_359_676_800_000),
        ("2013-02-01T01:00:00+01:00", 1_359_676_800_000),
        ("2013-02-01", 1_359_676_800_000),
        ("1969-12-31T23:59:59Z", -1_000),
    ],
)
def test_a_time_without_a_zone_is_in_utc(monkeypatch: pytest.MonkeyPatch, text: str, millis: int) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    __import__("time").tzset()
    try:
        assert _parse_time(NONE, NONE, text) == millis
    finally:
        monkeypatch.undo()
        __import__("time").tzset()


def test_what_is_no_time_is_refused() -> None:
    with pytest.raises(click.BadParameter, match="write it as"):
        _parse_time(NONE, NONE, "tomorrow")


def test_only_streams_of_the_settings_are_taken() -> None:
    settings = Settings.model_validate(
        {"kafka": {"bootstrap_servers": "nowhere:1"}, "streams": {"flights": {"table": "/t"}}}
    )
    require_stream(settings, "flights")
    with pytest.raises(UserError, match="stream hotels is not configured; configured are: flights"):
        require_stream(settings, "hotels")


@pytest.mark.parametrize(("text", "seconds"), [("90", 90.0), ("1h", 3_600.0), ("500ms", 0.5)])
def test_timeouts_have_units(text: str, seconds: float) -> None:
    assert parse_timeout(NONE, NONE, text) == seconds


def test_ages_are_of_the_past() -> None:
    now = 10_000_000
    assert _ago(now - 5_000, now) != _ago(now, now)
    assert _ago(now - 5_000, now).startswith("5")
    assert "-" not in _ago(now - 90_000, now)


PROGRAM: Final = """
from sluicegate.cli.terminal import progress_line
import click
with progress_line(wanted={wanted}, every={every}) as line:
    line.show("reading the log: 1 of 2" + "x" * 500)
    line.note("decision 1 is in the table")
    line.show("reading the log: 2 of 2")
click.echo("done")
"""


def on_a_terminal(program: str) -> tuple[str, str]:
    """Run a program with a terminal as its stderr; return stdout and what the terminal got."""
    master, slave = pty.openpty()
    environment = {**os.environ, "COLUMNS": "40"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, stderr=slave, check=True
    )
    os.close(slave)
    with os.fdopen(master, "rb") as terminal:
        return done.stdout.decode(), terminal.read1().decode()


def in_a_pipe(program: str) -> tuple[str, str]:
    """Run a program without a terminal; return stdout and stderr."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return done.stdout, done.stderr


@pytest.mark.slow
def test_a_terminal_gets_one_line_that_is_removed() -> None:
    out, shown = on_a_terminal(PROGRAM.format(wanted=True, every=30))
    assert out == "done\n"
    clear = "\r\x1b[K"
    first, second, third, last = shown.split(clear)[1:]
    assert first == ("reading the log: 1 of 2" + "x" * 500)[:39]
    assert second.replace("\r\n", "\n") == "decision 1 is in the table\n"
    assert third == "reading the log: 2 of 2"
    assert last == ""


@pytest.mark.slow
def test_a_pipe_gets_messages_alone() -> None:
    assert in_a_pipe(PROGRAM.format(wanted=True, every=30)) == ("done\n", "decision 1 is in the table\n")


@pytest.mark.slow
def test_a_pipe_gets_the_progress_from_time_to_time() -> None:
    shown = "reading the log: 1 of 2" + "x" * 500
    said = f"{shown}\ndecision 1 is in the table\nreading the log: 2 of 2\n"
    assert in_a_pipe(PROGRAM.format(wanted=True, every=0)) == ("done\n", said)
    assert in_a_pipe(PROGRAM.format(wanted=False, every=0)) == ("done\n", "decision 1 is in the table\n")


COLOURS: Final = """
from sluicegate.cli.terminal import coloured
import click
click.echo(coloured("PROBLEM", "bad") + coloured(" fine", None), err=True)
click.echo(coloured("PROBLEM", "bad"))
"""


@pytest.mark.slow
def test_only_a_terminal_gets_colours_and_none_against_its_will(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert on_a_terminal(COLOURS) == ("PROBLEM\n", "\x1b[31mPROBLEM\x1b[0m fine\r\n")
    monkeypatch.setenv("NO_COLOR", "1")
    assert on_a_terminal(COLOURS) == ("PROBLEM\n", "PROBLEM fine\r\n")
