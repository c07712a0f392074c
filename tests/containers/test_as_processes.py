"""The commands of the compose file, with servers of this machine, from the topics up to committed rows."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final
from urllib.error import URLError
from urllib.request import urlopen

import pytest
import yaml

from sluicegate.cli.local.process import free_port
from tests.containers.compose import EXAMPLES
from tests.containers.test_compose import CONFIG, ROWS, TABLE
from tests.integration.waiting import wait_until
from tests.servers import COMPOSE_FILE

PROGRAM: Final = "from sluicegate.cli.main import main; main()"


class Deployment:
    """Services of the compose file as processes, with addresses and a table of the test's own."""

    def __init__(self, bootstrap: str, redis_url: str, prefix: str, folder: Path) -> None:
        self.services: dict[str, Any] = yaml.safe_load(COMPOSE_FILE.read_text(encoding="utf-8"))["services"]
        self.table = folder / "default.db" / "orders"
        self.port = free_port()
        self._log = folder / "coordinator.log"
        self._own = {
            "SLUICEGATE_KAFKA__BOOTSTRAP_SERVERS": bootstrap,
            "SLUICEGATE_KAFKA__TOPIC_PREFIX": prefix,
            "SLUICEGATE_KAFKA__GROUP_ID": prefix,
            "SLUICEGATE_REDIS__URL": redis_url,
            "SLUICEGATE_HTTP__PORT": str(self.port),
            "SLUICEGATE_STREAMS__ORDERS__TABLE": str(self.table),
        }

    def start(self, name: str) -> subprocess.Popen[bytes]:
        """Start the command of a service, with the settings that the file mounts by default."""
        service = self.services[name]
        (source,) = (each["source"] for each in service["volumes"] if isinstance(each, dict))
        default = re.fullmatch(r"\$\{SLUICEGATE_CONFIG:-(.+)\}", source)
        assert default is not None
        settings = str(COMPOSE_FILE.parent / default[1])
        command = [settings if each == CONFIG else each for each in service["command"]]
        kept = {name: value for name, value in os.environ.items() if not name.startswith("SLUICEGATE")}
        with self._log.open("ab") as output:
            return subprocess.Popen(
                [sys.executable, "-c", PROGRAM, *command],
                stdout=subprocess.PIPE if name == "topics" else output,
                stderr=output,
                env={**kept, **service["environment"], **self._own},
            )

    def topics(self) -> list[str]:
        """Run the service that creates the topics, and return what it says of each."""
        process = self.start("topics")
        told, _ = process.communicate()
        assert process.returncode == 0, self._log.read_text(encoding="utf-8")
        return [line.split()[0] for line in told.decode().splitlines()]

    def until_ready(self, process: subprocess.Popen[bytes]) -> None:
        """Wait until the service says that it is ready."""

        def look() -> bool:
            try:
                with urlopen(f"http://127.0.0.1:{self.port}/readyz") as answer:
                    return bool(json.load(answer)["ready"])
            except URLError:
                return False

        wait_until(look, by=process, log=self._log)


@pytest.fixture
def deployment(kafka_bootstrap: str, redis_url: str, unique: str, tmp_path: Path) -> Deployment:
    return Deployment(kafka_bootstrap, redis_url, unique, tmp_path)


def printed(example: str, *arguments: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, EXAMPLES / example, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


@pytest.mark.seam
def test_its_commands_start_a_coordinator_that_commits(
    deployment: Deployment, kafka_bootstrap: str, unique: str
) -> None:
    assert deployment.topics() == ["created"] * 4
    process = deployment.start("coordinator")
    try:
        deployment.until_ready(process)
        job = [kafka_bootstrap, "orders", str(EXAMPLES / "orders.csv"), str(deployment.table)]
        told = printed("own_table.py", *job, "--topic-prefix", unique)
        assert told[-1:] == ["committed: 3 new rows"]
        assert printed("read_rows.py", str(deployment.table)) == ROWS
        # A second `docker compose up` runs it again.
        assert deployment.topics() == ["exists"] * 4
    finally:
        process.kill()
        process.wait()


def test_the_settings_and_the_page_have_the_table_of_the_container_tests() -> None:
    text = (EXAMPLES / "compose.toml").read_text(encoding="utf-8")
    assert re.findall(r"^\[streams\.(\w+)\]\ntable = \"(.+)\"$", text, re.MULTILINE) == [("orders", TABLE)]
    page = (EXAMPLES.parent / "docs" / "install.md").read_text(encoding="utf-8")
    assert f"/examples/own_table.py kafka:9092 orders /examples/orders.csv {TABLE}\n" in page
    assert f"/examples/read_rows.py {TABLE}\n" in page
