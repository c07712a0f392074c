"""Mistakes that a user can correct end with exit status 2 and a message, never with a traceback."""

import subprocess
import sys

import pytest
from aiokafka.errors import GroupAuthorizationFailedError, KafkaError, NotCoordinatorForGroupError
from click.testing import CliRunner

from sluicegate.cli.errors import UserError, as_user_errors
from sluicegate.cli.main import main
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
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith(
        f"Error: Kafka at {servers} does not answer; check kafka.bootstrap_servers"
    )


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


def test_demo_without_its_packages_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    result = CliRunner().invoke(main, ["demo"])
    assert result.exit_code == 2
    assert 'pip install ".[demo]"' in result.stderr


@pytest.mark.parametrize(("arguments", "status"), [(["-h"], 0), (["--help"], 0), (["--unknown"], 2)])
def test_demo_has_its_own_options(arguments: list[str], status: int) -> None:
    assert CliRunner().invoke(main, ["demo", *arguments]).exit_code == status
