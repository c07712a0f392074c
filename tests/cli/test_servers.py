"""`sluicegate servers`: real servers in the foreground, with the settings to use, until they are ended."""

import signal
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from sluicegate.cli.local.process import free_port
from sluicegate.cli.main import main
from sluicegate.lakes.storages import open_storage
from tests.integration.waiting import BACKSTOP

PROGRAM = "from sluicegate.cli.main import main; main(prog_name='sluicegate')"


@pytest.mark.kafka
@pytest.mark.redis
@pytest.mark.parametrize(
    ("end", "hdfs"),
    [(signal.SIGINT, None), pytest.param(signal.SIGTERM, free_port(), marks=pytest.mark.hdfs)],
)
def test_what_is_printed_is_enough_for_the_service_until_a_signal_ends_all(
    tmp_path: Path, end: signal.Signals, hdfs: int | None
) -> None:
    ports = [str(free_port()), str(free_port())]
    command = [sys.executable, "-c", PROGRAM, "servers", "--dir", str(tmp_path / "servers")]
    command += ["--kafka-port", ports[0], "--valkey-port", ports[1]]
    command += ["--hdfs", "--hdfs-port", str(hdfs)] if hdfs else []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            printed = [process.stdout.readline() for _ in range(7 if hdfs else 5)]
            settings = tomllib.loads("".join(printed))
            assert settings == {
                "kafka": {"bootstrap_servers": f"127.0.0.1:{ports[0]}"},
                "redis": {"url": f"redis://127.0.0.1:{ports[1]}/0"},
            }
            config = tmp_path / "sluicegate.toml"
            config.write_text("".join(printed) + '[streams.flights]\ntable = "/lake/flights"\n')
            made = CliRunner().invoke(main, ["topics", "create", "--config", str(config)])
            assert made.exit_code == 0, made.output
            if hdfs:
                root = f"hdfs://127.0.0.1:{hdfs}/"
                assert printed[-1] == f"# Locations of tables begin with {root}\n"
                assert open_storage(root).names(".") == []
            process.send_signal(end)
            _, said = process.communicate(timeout=BACKSTOP)
        finally:
            process.kill()
    assert (process.returncode, said.splitlines()[-1]) == (0, f"{'all' if hdfs else 'both'} have ended")
    gone = CliRunner().invoke(main, ["topics", "create", "--config", str(config)])
    assert "does not answer" in gone.stderr


def test_a_folder_that_cannot_be_made_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    # The usual ports may be in use.
    ports = ["--kafka-port", str(free_port()), "--valkey-port", str(free_port())]
    result = CliRunner().invoke(main, ["servers", "--dir", str(tmp_path / "file" / "folder"), *ports])
    assert (result.exit_code, str(tmp_path / "file") in result.stderr) == (2, True), result.output


def test_all_used_ports_are_named_at_once(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as kafka, socket.create_server(("127.0.0.1", 0)) as valkey:
        ports = [str(each.getsockname()[1]) for each in (kafka, valkey)]
        command = [
            "servers",
            "--dir",
            str(tmp_path / "a"),
            "--kafka-port",
            ports[0],
            "--valkey-port",
            ports[1],
        ]
        result = CliRunner().invoke(main, command)
    assert result.exit_code == 2
    assert all(port in result.stderr for port in (*ports, "--kafka-port", "--valkey-port")), result.stderr
    assert not (tmp_path / "a").exists()
