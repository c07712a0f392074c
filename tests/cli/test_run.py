"""`sluicegate run` as a supervisor runs it: a process with probes, logs and a signal to end."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import pytest

from sluicegate.cli.local.process import free_port
from tests.cli.deployment import Deployment
from tests.integration.coordinator import coordinator_process
from tests.integration.waiting import BACKSTOP, exit_status, wait_until

PROGRAM = "from sluicegate.cli.main import main; main()"


def _service(deployment: Deployment, log: Path) -> AbstractContextManager[subprocess.Popen[bytes]]:
    env = {name.removeprefix("SLUICEGATE_"): value for name, value in deployment.env.items()}
    return coordinator_process(deployment.config, log, **env)


def _port(process: subprocess.Popen[bytes], log: Path) -> int:
    """The port that the log names."""

    def look() -> int | None:
        for line in log.read_text(encoding="utf-8").splitlines():
            if line.endswith("}") and (event := json.loads(line))["event"] == "listening":
                return int(event["port"])
        return None

    return wait_until(look, by=process, log=log) or 0


def _get(port: int, path: str) -> tuple[int, str]:
    try:
        with urlopen(f"http://127.0.0.1:{port}{path}", timeout=BACKSTOP) as answer:
            return int(answer.status), answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


def _until_ready(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    wait_until(lambda: _get(port, "/readyz"), lambda answer: answer[0] == 200, by=process, log=log)


@pytest.mark.kafka
@pytest.mark.seam
@pytest.mark.parametrize("end", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.matrix)])
def test_probes_answer_and_a_signal_ends_it(
    deployment: Deployment, tmp_path: Path, end: signal.Signals
) -> None:
    deployment.create_topics()
    log = tmp_path / "log"
    with _service(deployment, log) as process:
        port = _port(process, log)
        _until_ready(process, port, log)
        assert _get(port, "/livez")[0] == 200
        assert "sluicegate_assignment_epoch 1.0" in _get(port, "/metrics")[1].splitlines()
        assert isinstance(json.loads(_get(port, "/status")[1]), dict)
        process.send_signal(end)
        assert exit_status(process, log) == 0, log.read_text(encoding="utf-8")
    with pytest.raises(URLError):
        _get(port, "/livez")
    events = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    assert not [event for event in events if event["level"] in ("warning", "error")]
    assert [event["cause"] for event in events if event["event"] == "stopping"] == [end.name]
    assert (events[-1]["event"], events[-1]["cause"]) == ("stopped", end.name)
    told = [event for event in events if event["event"].startswith("partition")]
    assert [(each["event"], each["partitions"]) for each in told] == [("partitions assigned", [0, 1, 2])]
    assert told[0]["streams"] == ["flights"]


@pytest.mark.kafka
@pytest.mark.seam
def test_kafka_that_is_away_is_told_in_one_sentence(nobody: Deployment, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with _service(nobody, log) as process:
        port = _port(process, log)
        wait_until(lambda: "Kafka does not answer" in log.read_text(encoding="utf-8"), by=process, log=log)
        assert "Kafka is away" in _get(port, "/readyz")[1]
        process.send_signal(signal.SIGTERM)
        assert exit_status(process, log) == 0
    warned = [
        event["event"]
        for line in log.read_text(encoding="utf-8").splitlines()
        if (event := json.loads(line))["level"] in ("warning", "error")
    ]
    assert len(warned) == 1, warned
    assert warned[0].startswith("Kafka does not answer (")
    assert nobody.settings.kafka.bootstrap_servers.rpartition(":")[2] in warned[0]


@pytest.mark.kafka
@pytest.mark.seam
def test_taken_port_ends_it_with_a_message(deployment: Deployment, tmp_path: Path) -> None:
    deployment.create_topics()
    first, second = tmp_path / "first", tmp_path / "second"
    with _service(deployment, first) as running:
        deployment.env["SLUICEGATE_HTTP__PORT"] = str(_port(running, first))
        with _service(deployment, second) as process:
            assert exit_status(process, second) == 2
    *_, cause, last = second.read_text(encoding="utf-8").splitlines()
    assert json.loads(cause)["event"] == "stopped"
    assert json.loads(cause)["cause"].startswith("CannotServe: cannot listen on 127.0.0.1:")
    assert last.startswith("Error: cannot listen on 127.0.0.1:")


@pytest.mark.kafka
@pytest.mark.seam
def test_missing_topics_end_it_with_a_message(deployment: Deployment, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with _service(deployment, log) as process:
        assert exit_status(process, log) == 2
    lines = log.read_text(encoding="utf-8").splitlines()
    causes = [json.loads(line)["cause"] for line in lines if line.startswith('{"') and '"stopped"' in line]
    assert len(causes) == 1
    assert causes[0].startswith("TopicsRefused: ")
    assert "sluicegate topics create" in lines[-1]


@pytest.mark.kafka
@pytest.mark.seam
def test_a_stream_is_named_in_one_place(deployment: Deployment) -> None:
    result = deployment.run("run", "--table", "flights=/lake/other")
    assert (result.exit_code, "the stream flights is in" in result.stderr) == (2, True), result.output
    assert "Leave it out, or change the table there" in result.stderr


@dataclass
class _Shell:
    """A shell without a settings file, in an empty folder."""

    env: dict[str, str]
    folder: Path

    def start(self, *words: str, stderr: IO[bytes]) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", PROGRAM, *words]
        return subprocess.Popen(command, stderr=stderr, env=self.env, cwd=self.folder)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", PROGRAM, *words]
        return subprocess.run(command, env=self.env, cwd=self.folder, capture_output=True, text=True)


@pytest.fixture
def shell(deployment: Deployment, tmp_path: Path) -> _Shell:
    """Give a shell with the Kafka of the deployment alone."""
    kafka, folder = deployment.settings.kafka, tmp_path / "empty"
    folder.mkdir()
    clean = {key: value for key, value in os.environ.items() if not key.startswith("SLUICEGATE_")}
    ours = {
        "SLUICEGATE_KAFKA__BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
        "SLUICEGATE_KAFKA__TOPIC_PREFIX": kafka.topic_prefix,
        "SLUICEGATE_KAFKA__GROUP_ID": kafka.group_id,
        "SLUICEGATE_HTTP__PORT": "0",
    }
    return _Shell({**clean, **ours}, folder)


@pytest.mark.kafka
@pytest.mark.seam
def test_a_try_without_a_settings_file_works_by_its_printed_advice(shell: _Shell, tmp_path: Path) -> None:
    table, log = str(tmp_path / "default.db" / "tried"), tmp_path / "log"
    tried = ("run", "--table", f"tried={table}")
    first = shell.run(*tried)
    assert first.returncode == 2
    advised = first.stderr.splitlines()[-1].rpartition("create them with: ")[2]
    assert advised == "sluicegate topics create"
    created = shell.run(*advised.split()[1:])
    assert created.returncode == 0, created.stderr
    assert "created  " in created.stdout
    assert "no settings file: Kafka at " in created.stderr
    asked: tuple[tuple[str, ...], ...] = (("status",), ("history", "--stream", "tried"))
    with log.open("wb") as stderr, shell.start(*tried, stderr=stderr) as process:
        try:
            _port(process, log)
            for words in asked:
                refused = shell.run(*words)
                assert refused.returncode == 2
                assert "`sluicegate init --table URI --stream NAME` writes one" in refused.stderr
            assert shell.run("init", "--table", table, "--stream", "tried").returncode == 0
            for words in asked:
                done = shell.run(*words)
                assert "no --config given" not in done.stderr
                assert done.returncode == 0 or "tried" in done.stdout, done.stderr
        finally:
            process.kill()


# Each import of the process is a line of its output, so a test knows how far it is.
_COMMAND: Final = (
    sys.executable,
    "-X",
    "importtime",
    "-c",
    "from sluicegate.cli.main import main; main()",
    "run",
)

EARLY: Final = "sluicegate.events.problems"
"""One of the first modules that the command imports, a second before the service listens."""


class Run:
    """A coordinator without Kafka, and its output."""

    def __init__(self, config: Path) -> None:
        self.process = subprocess.Popen(
            [*_COMMAND, "--config", str(config)], stderr=subprocess.PIPE, text=True
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as lines:
            for line in lines:
                self.lines.append(line.rstrip("\n"))

    def wait(self, holds: Callable[[], object], what: str) -> None:
        wait_until(lambda: bool(holds()) or self.process.poll() is not None, what=what)
        assert self.process.poll() is None, "\n".join(self.lines[-5:])

    def has_imported(self, module: str) -> bool:
        return any(line.endswith(f" {module}") for line in list(self.lines))

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in list(self.lines) if line.startswith("{")]

    def has(self, event: str) -> bool:
        return any(each["event"] == event for each in self.events())

    def end(self) -> int:
        status = self.process.wait(BACKSTOP)
        self._reader.join(BACKSTOP)
        return status


@pytest.fixture
def config(tmp_path: Path) -> Path:
    config = tmp_path / "sluicegate.toml"
    config.write_text(
        f'[kafka]\nbootstrap_servers = "127.0.0.1:{free_port()}"\n[http]\nport = 0\n'
        f'[streams.flights]\ntable = "{tmp_path}/flights"\n',
        encoding="utf-8",
    )
    return config


@contextmanager
def running(config: Path) -> Iterator[Run]:
    made = Run(config)
    try:
        yield made
    finally:
        made.process.kill()
        made.end()


@pytest.fixture
def run(config: Path) -> Iterator[Run]:
    with running(config) as made:
        yield made


@pytest.mark.slow
@pytest.mark.seam
def test_signals_while_the_command_is_imported(run: Run) -> None:
    run.wait(lambda: run.has_imported(EARLY), "the command is not imported")
    assert not run.has("listening")
    run.process.send_signal(signal.SIGHUP)
    run.wait(lambda: run.has("settings reloaded"), "the reload is lost")
    # Until the last moment, also when the loop is closed.
    run.process.send_signal(signal.SIGTERM)
    while run.process.poll() is None:
        run.process.send_signal(signal.SIGHUP)
    assert run.end() == 0
    assert (run.events()[-1]["event"], run.events()[-1]["cause"]) == ("stopped", "SIGTERM")


@pytest.mark.slow
def test_a_parent_that_blocks_a_signal_loses_none(config: Path) -> None:
    """`sluicegate up` starts its coordinator so: the signal waits until the process can take it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    try:
        with running(config) as run:
            run.process.send_signal(signal.SIGHUP)
            run.wait(lambda: run.has("settings reloaded"), "the reload is lost")
            run.process.send_signal(signal.SIGTERM)
            assert run.end() == 0
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
