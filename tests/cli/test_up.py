"""`sluicegate up`: one command, and a first committed row of a table of one's own."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
import redis
from click.testing import CliRunner, Result

from sluicegate.cli.local.process import free_port
from sluicegate.cli.main import main
from sluicegate.coordinator.settings.model import load
from sluicegate.kafka.topics import TopicNames
from sluicegate.writer_hooks import Job
from tests.cli.deployment import make_table
from tests.cli.test_servers import PROGRAM
from tests.integration.job import read_ids
from tests.integration.waiting import BACKSTOP, until
from tests.shop import Shop, ShopJob


@contextmanager
def _up(folder: Path, *arguments: str, stdin: int | None = None) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", PROGRAM, "up", "--dir", str(folder), *arguments]
    with subprocess.Popen(
        command, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _await_ready(process: subprocess.Popen[str], config: Path) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == f"export SLUICEGATE_CONFIG={config}\n"


def _end(process: subprocess.Popen[str]) -> str:
    process.terminate()
    _, said = process.communicate(timeout=BACKSTOP)
    assert process.returncode == 0, said
    return said


def _run(*arguments: str, config: Path) -> Result:
    return CliRunner().invoke(main, arguments, env={"SLUICEGATE_CONFIG": str(config)})


@pytest.mark.kafka
@pytest.mark.redis
def test_a_table_of_ones_own_has_a_row_and_the_next_start_goes_on(tmp_path: Path) -> None:
    table, config, kafka = make_table(tmp_path, "flights"), tmp_path / "up" / "sluicegate.toml", free_port()
    ports = ["--kafka-port", str(kafka), "--valkey-port", str(free_port()), "--http-port", str(free_port())]
    options = {"stream": "flights", "region": "jobs", "table": str(table)}
    options["kafka.bootstrap.servers"] = f"127.0.0.1:{kafka}"
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("text", pa.string())])
    for number, arguments in enumerate((["--table", f"flights={table}", *ports], [])):
        with _up(tmp_path / "up", *arguments) as process:
            _await_ready(process, config)
            with Job(options, f"job-{number}") as job:
                assert job.start()
                job.finish([job.write("w0", pa.table({"id": [number], "text": ["a"]}, schema=schema))])
            shown = _run("status", config=config)
            assert "flights  commit" in shown.stdout, shown.output
            said = _end(process)
            assert said.splitlines()[-1] == "all have ended"
    assert read_ids(str(table)) == [0, 1]


@pytest.mark.kafka
@pytest.mark.redis
async def test_tables_of_one_stream_are_committed_together(tmp_path: Path) -> None:
    folder, kafka = tmp_path / "up", free_port()
    folder.mkdir()
    config = folder / "sluicegate.toml"
    shop = Shop(folder)
    ports = ["--kafka-port", str(kafka), "--valkey-port", str(free_port()), "--http-port", str(free_port())]
    tables = [f"--table={name}={shop.place(name)}" for name in ("orders", "items")]
    with _up(folder, "--stream", "shop", *tables, *ports) as process:
        await asyncio.to_thread(_await_ready, process, config)
        assert {name: each.identifier for name, each in load(config, {}).streams["shop"].tables.items()} == {
            "items": "shop.items"
        }
        job = ShopJob(shop, f"127.0.0.1:{kafka}", TopicNames("sluicegate"), partitions=12)
        async with job:
            assert (await job.register()).accepted
            await job.sell(2)
            await until(shop.vector, lambda found: found.get("decision") == 1, by=process)
        _end(process)
    assert shop.table("items").scan().to_arrow().num_rows == 4


def test_what_cannot_be_started_is_refused_before_a_server_is(tmp_path: Path) -> None:
    folder = tmp_path / "up"
    config = folder / "sluicegate.toml"

    def refused(*arguments: str) -> str:
        result = CliRunner().invoke(main, ["up", "--dir", str(folder), *arguments])
        assert result.exit_code == 2, result.output
        return result.stderr

    assert "name a stream and its table, such as --table flights=" in refused()
    assert "does not have the form NAME=URI" in refused("--table", "/lake/flights")
    assert "is given twice" in refused("--table", "a=/lake/a", "--table", "a=/lake/b")
    assert "the settings in" in refused("--table", "a b=/lake/a")
    assert "csv" in refused("--table", "a=/lake/a", "--format", "csv")
    assert "NAME=VALUE" in refused("--table", "a=/lake/a", "--option", "uri")
    assert "Use Iceberg, or leave out --stream" in refused(
        "--stream", "shop", "--table", "a=/lake/a", "--format", "delta"
    )
    assert "Leave the option out" in refused(
        "--stream", "shop", "--table", "a=/lake/d/a", "--option", "identifier=d.a"
    )
    assert "must be NAMESPACE.TABLE" in refused(
        "--stream", "shop", "--table", "a=/lake/d/a", "--table", "b=/b"
    )
    assert "needs the option uri" in refused(
        "--table", "a=/lake/d.db/a", "--format", "iceberg", "--option", "type=rest"
    )
    assert not folder.exists()
    folder.mkdir()
    config.write_text(
        '[kafka]\nbootstrap_servers = "127.0.0.1:1"\n[redis]\nurl = "redis://127.0.0.1:2/0"\n'
        '[streams.a]\ntable = "/lake/a"\n'
    )
    assert "Name another stream for the table /lake/b" in refused("--table", "a=/lake/b")
    assert "[streams.a.tables]" in refused("--stream", "a", "--table", "x=/lake/a", "--table", "y=/lake/d/y")
    config.write_text('[kafka]\nbootstrap_servers = "kafka:9092"\n[streams.a]\ntable = "/lake/a"\n')
    assert "Use other servers with `sluicegate run` and that file" in refused()
    config.unlink()
    folder.rmdir()
    folder.touch()
    arguments = ["up", "--dir", str(folder / "below"), "--table", "a=/lake/a", *_ports()]
    result = CliRunner().invoke(main, arguments)
    assert (result.exit_code, "Name another --dir" in result.stderr) == (2, True), result.output


@pytest.mark.kafka
@pytest.mark.redis
def test_a_taken_port_names_its_option_and_another_port_starts(tmp_path: Path) -> None:
    folder = tmp_path / "up"
    config = folder / "sluicegate.toml"
    table, ports = f"flights={make_table(tmp_path, 'flights')}", _ports()
    names, settings = ports[::2], ("kafka.bootstrap_servers", "redis.url", "http.port")

    def refused(*arguments: str) -> str:
        result = CliRunner().invoke(main, ["up", "--dir", str(folder), *arguments])
        assert result.exit_code == 2, result.output
        return result.stderr

    with ExitStack() as stack:
        for port in ports[1::2]:
            stack.enter_context(_occupied(int(port)))
        message = refused("--table", table, *ports)
        assert all(port in message for port in ports[1::2]), message
        assert f"choose another port with {' and '.join(names)}" in message
    assert not folder.exists()
    with _occupied(int(ports[1])):
        chosen = [names[0], str(free_port()), *ports[2:]]
        with _up(folder, "--table", table, *chosen) as process:
            _await_ready(process, config)
            _end(process)
    before = config.read_text()
    for name, setting in zip(names, settings, strict=True):
        message = refused(name, "1")
        assert f"Change {setting} there to use port 1, or leave out {name}" in message
    with _occupied(int(chosen[1])):
        assert f"change kafka.bootstrap_servers in {config}" in refused()
        assert config.read_text() == before
        config.write_text(before.replace(chosen[1], ports[1]))
        with _up(folder) as process:
            _await_ready(process, config)
            _end(process)


@pytest.mark.kafka
@pytest.mark.redis
def test_a_refused_reload_a_dead_valkey_and_a_killed_coordinator_are_printed(tmp_path: Path) -> None:
    folder, ports = tmp_path / "up", _ports()
    config = folder / "sluicegate.toml"
    with _up(folder, "--table", f"flights={make_table(tmp_path, 'flights')}", *ports) as process:
        assert process.stderr is not None

        def printed(text: str) -> str:
            assert process.stderr is not None
            return next(line for line in process.stderr if text in line)

        _await_ready(process, config)
        printed("All run until Ctrl-C")
        config.write_text(config.read_text().replace("[http]", "[http]\nhots = 1"))
        process.send_signal(signal.SIGHUP)
        assert "hots" in printed("settings not reloaded")
        with redis.Redis(port=int(ports[3])) as valkey:
            valkey.shutdown(nosave=True)
        assert "Commits continue" in printed("Valkey has ended by itself")
        os.kill(_child(process.pid, "sluicegate.cli.main"), signal.SIGKILL)
        assert str(folder / "coordinator.log") in printed("killed by signal 9 (SIGKILL)")
        assert process.wait(BACKSTOP) == 2


def _child(parent: int, command: str) -> int:
    """Return the child process with this text in its command."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    (found,) = (each for each in children if command in Path(f"/proc/{each}/cmdline").read_text())
    return int(found)


def _ports() -> list[str]:
    """Return options with free ports."""
    names = ("--kafka-port", "--valkey-port", "--http-port")
    return [word for name in names for word in (name, str(free_port()))]


@contextmanager
def _occupied(port: int) -> Iterator[None]:
    import socket

    with socket.create_server(("127.0.0.1", port)):
        yield
