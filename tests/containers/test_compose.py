"""The image and the compose file: built, started, and used up to a committed row."""

import json
import subprocess
import urllib.request
from pathlib import Path
from typing import Final

import pytest

import sluicegate
from tests.containers.compose import Compose

pytestmark = pytest.mark.engine

IMAGE: Final = "sluicegate-coordinator"
CONFIG: Final = "/etc/sluicegate/sluicegate.toml"
WAREHOUSE: Final = "/var/lib/sluicegate/warehouse"
SCRIPT: Final = Path(__file__).with_name("one_row.py")
COMMITTED: Final = "committed 0 [7]"
LOCATIONS: Final = {"paimon": "default.db/flights", "delta": "flights"}


def settings_text(format: str, warehouse: str) -> str:
    """Return the settings of the stream; the rest comes from the environment of the compose file."""
    return f'[streams.flights]\nformat = "{format}"\ntable = "{warehouse}/{LOCATIONS[format]}"\n'


@pytest.mark.slow
def test_the_image_runs_as_its_user_with_a_read_only_file_system(compose: Compose) -> None:
    compose.call("build", "coordinator")
    command = ["docker", "run", "--rm", "--read-only", "--cap-drop", "ALL", "--network", "none", IMAGE]
    shown = subprocess.run([*command, "sluicegate", "--version"], capture_output=True, text=True, check=True)
    assert shown.stdout == f"sluicegate, version {sluicegate.__version__}\n"
    user = subprocess.run([*command, "id", "-u"], capture_output=True, text=True, check=True).stdout
    assert user.strip() == "10001"
    for each in ("delta", "iceberg", "paimon"):
        subprocess.run([*command, "python", "-c", f"import sluicegate.lakes.{each}.adapter"], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("format", LOCATIONS)
def test_the_compose_file_commits_a_row(compose: Compose, format: str) -> None:
    settings = compose.folder / "sluicegate.toml"
    settings.write_text(settings_text(format, WAREHOUSE), encoding="utf-8")
    settings.chmod(0o644)
    compose.call("build", "coordinator")
    compose.call("up", "--detach", "--wait", "kafka", "valkey")
    compose.in_the_image("sluicegate", "topics", "create", "--config", CONFIG)
    compose.call("up", "--detach", "--wait")
    shown = compose.in_the_image(
        "python", "-", "kafka:9092", WAREHOUSE, format, given=SCRIPT.read_text(encoding="utf-8")
    )
    assert shown.splitlines()[-1] == COMMITTED
    with urllib.request.urlopen("http://127.0.0.1:8080/readyz") as answer:
        assert json.load(answer)["ready"] is True
    status = compose.call("exec", "-T", "coordinator", "sluicegate", "status", "--json", "--config", CONFIG)
    assert "flights" in json.dumps(json.loads(status))
