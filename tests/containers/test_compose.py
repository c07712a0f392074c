"""The image and the compose file: built, started, and used up to committed rows."""

import json
import subprocess
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

import sluicegate
from tests.containers.compose import Compose

pytestmark = pytest.mark.engine

IMAGE: Final = "sluicegate-coordinator"
LOADS: Final = Path(__file__).with_name("loads.py")
CONFIG: Final = "/etc/sluicegate/sluicegate.toml"
TABLE: Final = "/var/lib/sluicegate/warehouse/default.db/orders"
ROWS: Final = ["1  bolts  200  0.12", "2  nuts  350  0.07", "3  washers  80  0.03", "3 rows"]
"""Rows of `examples/orders.csv`, as `examples/read_rows.py` prints them."""


@pytest.mark.slow
def test_the_image_runs_as_its_user_with_a_read_only_file_system(compose: Compose) -> None:
    compose.call("build", "coordinator")
    command = ["docker", "run", "--rm", "--read-only", "--cap-drop", "ALL", "--network", "none"]
    shown = subprocess.run([*command, IMAGE, "--version"], capture_output=True, text=True, check=True)
    assert shown.stdout == f"sluicegate, version {sluicegate.__version__}\n"
    user = subprocess.run(
        [*command, "--entrypoint", "id", IMAGE, "-u"], capture_output=True, text=True, check=True
    )
    assert user.stdout.strip() == "10001"
    command += ["--volume", f"{LOADS}:/loads.py:ro", "--entrypoint", "python", IMAGE, "/loads.py"]
    subprocess.run(command, check=True)


@pytest.mark.slow
@pytest.mark.parametrize("format", ["paimon", "delta"])
def test_one_command_starts_a_coordinator_that_commits(compose: Compose, tmp_path: Path, format: str) -> None:
    if format != "paimon":  # the default settings are for Paimon
        settings = tmp_path / "sluicegate.toml"
        settings.write_text(f'[streams.orders]\nformat = "{format}"\ntable = "{TABLE}"\n', encoding="utf-8")
        settings.chmod(0o644)
        compose = replace(compose, settings=settings)
    compose.call("up", "--build", "--detach", "--wait")
    with urllib.request.urlopen("http://127.0.0.1:8080/readyz") as answer:
        assert json.load(answer)["ready"] is True
    job = ["own_table.py", "kafka:9092", "orders", "/examples/orders.csv", TABLE, "--format", format]
    assert compose.example(*job)[-1] == "committed: 3 new rows"
    assert compose.example("read_rows.py", TABLE) == ROWS
    status = compose.call("exec", "-T", "coordinator", "sluicegate", "status", "--json", "--config", CONFIG)
    assert "orders" in json.dumps(json.loads(status))
    # The topics exist now, and the same command changes nothing.
    compose.call("up", "--detach", "--wait")
