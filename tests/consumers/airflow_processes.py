"""A whole Airflow on this machine: its processes, its database and its logs."""

import json
import os
import re
import secrets
import signal
import socket
import sqlite3
import subprocess
from contextlib import closing, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from tests.packaging.environments import Environment
from tests.repository.test_layout import ROOT

EXAMPLE: Final = ROOT / "examples" / "airflow"
OTHERS: Final = ("dag-processor", "scheduler", "triggerer")
"""Processes beside the server, which the tasks need."""


def free_port() -> int:
    """Return a port that is free now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
    return port


class Airflow:
    """The processes of Airflow with the DAG of the example. Use it as a context, which starts its server."""

    def __init__(self, environment: Environment, home: Path, bootstrap: str, topic: str) -> None:
        self.environment, self.home = environment, home
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.port = port = free_port()
        kafka = {
            "bootstrap.servers": bootstrap,
            "group.id": f"airflow-{topic}",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        self.variables = {
            **kept,
            "AIRFLOW_HOME": str(home),
            "AIRFLOW_CONN_KAFKA_DEFAULT": json.dumps({"conn_type": "kafka", "extra": kafka}),
            "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(32),
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__PORT": str(port),
            "AIRFLOW__API__SECRET_KEY": secrets.token_hex(32),
            "AIRFLOW__API__WORKERS": "1",
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "false",
            "AIRFLOW__CORE__DAGS_FOLDER": str(EXAMPLE / "dags"),
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{port}/execution/",
            "AIRFLOW__CORE__LOAD_EXAMPLES": "false",
            "AIRFLOW__CORE__PARALLELISM": "2",
            "AIRFLOW__CORE__PLUGINS_FOLDER": str(EXAMPLE / "plugins"),
            # A slow machine is no failure.
            "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "120",
            "SLUICEGATE_COMMITS": topic,
        }

    def __enter__(self) -> Self:
        self.call("db", "migrate")
        self.start("api-server")
        return self

    def answers(self) -> bool:
        """Return True if the server for the tasks accepts connections."""
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", self.port)) == 0

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for part in [*self.processes]:
            self.kill(part)

    def call(self, *arguments: str) -> str:
        """Run a command of Airflow, and return its output."""
        command = [str(self.environment.folder / "bin" / "airflow"), *arguments]
        done = subprocess.run(command, env=self.variables, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
        return done.stdout

    def start(self, part: str) -> None:
        """Start a process in a group of its own."""
        command = [str(self.environment.folder / "bin" / "airflow"), part]
        with self.log(part).open("ab") as log:
            self.processes[part] = subprocess.Popen(
                command, env=self.variables, stdout=log, stderr=log, start_new_session=True
            )

    def kill(self, part: str) -> None:
        """Kill a process with its children."""
        process = self.processes.pop(part)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def log(self, part: str) -> Path:
        """Return the log of a process."""
        return self.home / f"{part}.log"

    # --- results ----------------------------------------------------------------------------------

    def query(self, statement: str) -> list[Any]:
        """Return the rows of a statement; none while the database is not ready."""
        place = f"file:{self.home / 'airflow.db'}?mode=ro"
        try:
            with closing(sqlite3.connect(place, uri=True)) as database:
                return database.execute(statement).fetchall()
        except sqlite3.OperationalError:
            return []

    def events(self) -> list[dict[str, Any]]:
        """Return the payloads of the events of the asset, in order."""
        rows = self.query("select extra from asset_event order by id")
        return [json.loads(extra)["payload"] for (extra,) in rows]

    def running(self) -> int:
        """Return the number of DAG runs that are not at their end, and of events that wait for one."""
        runs = self.query("select count(*) from dag_run where state in ('queued', 'running')")
        queued = self.query("select count(*) from asset_dag_run_queue")
        return int(runs[0][0] + queued[0][0]) if runs and queued else -1

    def reported(self) -> list[str]:
        """Return the ids of the marks that tasks have reported."""
        logs = (self.home / "logs").glob("dag_id=sluicegate_months/*/task_id=report/**/*.log")
        found = [
            re.findall(r"snapshot \d+, mark (mark-\d+)", path.read_text(encoding="utf-8")) for path in logs
        ]
        return sorted(each for ids in found for each in dict.fromkeys(ids))

    def failed(self) -> list[Any]:
        """Return the runs that have failed."""
        return self.query("select run_id from dag_run where state = 'failed'")
