"""The example for Dagster, in a real Dagster with an instance: each mark is one run."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pytest

from tests.consumers.environments import environment_of
from tests.consumers.marks import commit, mark, publish
from tests.integration.job import delete_records, make_topics
from tests.integration.waiting import until
from tests.packaging.environments import Environment
from tests.repository.test_layout import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.kafka]

TICK: Final = Path(__file__).with_name("dagster_tick.py")
STATE: Final = TICK.with_name("dagster_state.py")
EXAMPLE: Final = ROOT / "examples" / "dagster" / "sluicegate_months.py"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """Give an environment with Dagster."""
    return environment_of("dagster", tmp_path_factory.mktemp("dagster") / "environment")


class Dagster:
    """An instance of Dagster with the example: its daemon, and programs beside it."""

    def __init__(self, environment: Environment, home: Path, bootstrap: str, prefix: str) -> None:
        self._environment, self._home = environment, home
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        given = {"KAFKA": bootstrap, "PREFIX": prefix, "STREAM": "flights"}
        own = {f"SLUICEGATE_{name}": value for name, value in given.items()}
        self._variables = {**kept, **own, "DAGSTER_HOME": str(home), "DAGSTER_DISABLE_TELEMETRY": "yes"}
        (home / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
        self.state()  # makes the database: two processes at once cannot

    @contextmanager
    def daemon(self) -> Iterator[subprocess.Popen[bytes]]:
        """Run the daemon, which evaluates the sensor and launches the runs; killed at the end."""
        command: list[str | Path] = [
            self._environment.folder / "bin" / "dagster-daemon",
            "run",
            "-f",
            EXAMPLE,
        ]
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                command,
                cwd=self._home,
                env=self._variables,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    @property
    def log(self) -> Path:
        """Log of the daemon."""
        return self._home / "daemon.log"

    def python(self, script: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a script beside Dagster."""
        command: list[str | Path] = [self._environment.python, script, *arguments]
        return subprocess.run(
            command, cwd=self._home, env=self._variables, capture_output=True, text=True, check=False
        )

    def state(self) -> dict[str, Any]:
        """Return the cursor and the runs."""
        done = self.python(STATE)
        assert done.returncode == 0, done.stderr[-2000:]
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found

    def logged(self, words: str) -> int:
        """Return how often the daemon has logged something. That costs less than to ask Dagster."""
        return self.log.read_text(encoding="utf-8").count(words)

    def done(self) -> dict[str, str]:
        """Return the months of the runs that have succeeded, by their key."""
        return {each["key"]: each["month"] for each in self.state()["runs"] if each["status"] == "SUCCESS"}

    def tick(self, cursor: str) -> subprocess.CompletedProcess[str]:
        """Evaluate the sensor once."""
        return self.python(TICK, str(EXAMPLE), cursor)

    def set_cursor(self, cursor: str) -> None:
        """Set the cursor of the sensor, as an operator does."""
        program = self._environment.folder / "bin" / "dagster"
        command: list[str | Path] = [
            program,
            "sensor",
            "cursor",
            "complete_months",
            "--set",
            cursor,
            "-f",
            EXAMPLE,
        ]
        done = subprocess.run(
            command, cwd=self._home, env=self._variables, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr[-2000:]


async def test_each_mark_is_one_run_through_a_kill_and_a_cursor_that_is_set_back(
    environment: Environment, kafka_bootstrap: str, unique: str, tmp_path: Path
) -> None:
    topic = (await make_topics(kafka_bootstrap, unique)).commits
    dagster = Dagster(environment, tmp_path, kafka_bootstrap, unique)
    await publish(kafka_bootstrap, topic, mark(1, 1))
    with dagster.daemon() as daemon:
        # The first tick begins at the end of the topic.
        await until(lambda: dagster.logged("complete_months skipped") > 0, by=daemon, log=dagster.log)
        await publish(kafka_bootstrap, topic, commit(1), mark(2, 2), mark(2, 2), mark(3, 3, stream="others"))
        await until(lambda: dagster.logged("RUN_SUCCESS") == 1, by=daemon, log=dagster.log)
    assert dagster.done() == {"mark-2": "2013-02-01"}
    await publish(kafka_bootstrap, topic, mark(4, 2, late=True))
    dagster.set_cursor("{}")  # from the start of the topic on
    with dagster.daemon() as daemon:
        await until(lambda: dagster.logged("RUN_SUCCESS") == 3, by=daemon, log=dagster.log)
    assert dagster.done() == {"mark-1": "2013-01-01", "mark-2": "2013-02-01", "mark-4": "2013-02-01"}
    runs = dagster.state()["runs"]
    assert len(runs) == 3, "each mark is one run"
    (late,) = (each["config"] for each in runs if each["key"] == "mark-4")
    assert late == {"partition": "month=02", "snapshot": 4, "late": True}


async def test_a_tick_moves_the_cursor_and_sees_deleted_notifications(
    environment: Environment, kafka_bootstrap: str, unique: str, tmp_path: Path
) -> None:
    topic = (await make_topics(kafka_bootstrap, unique)).commits
    dagster = Dagster(environment, tmp_path, kafka_bootstrap, unique)
    first = json.loads(dagster.tick("").stdout.splitlines()[-1])
    assert first["requests"] == []
    await publish(kafka_bootstrap, topic, mark(1, 1), commit(1), mark(2, 2))
    second = json.loads(dagster.tick(first["cursor"]).stdout.splitlines()[-1])
    assert second["requests"] == [["mark-1", "2013-01-01"], ["mark-2", "2013-02-01"]]
    third = json.loads(dagster.tick(second["cursor"]).stdout.splitlines()[-1])
    assert (third["requests"], third["cursor"]) == ([], second["cursor"])
    await delete_records(kafka_bootstrap, topic, "flights")
    lost = dagster.tick(first["cursor"])
    assert lost.returncode != 0
    assert "notifications were deleted" in lost.stderr
