"""Values that a shell completes."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

PROGRAM: Final = "from sluicegate.cli.main import main; main(prog_name='sluicegate')"
SETTINGS: Final = """\
[kafka]
bootstrap_servers = "127.0.0.1:9092"
[streams.flights]
table = "/lake/flights"
regions = ["EWR", "JFK"]
[streams.orders]
table = "/lake/orders"
regions = ["main"]
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "own.toml"
    path.write_text(SETTINGS)
    return path


def completed(words: str, **variables: str) -> list[str]:
    """Return what bash is given for the last word."""
    given = {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split(" ")) - 1), **variables}
    environment = {**os.environ, "_SLUICEGATE_COMPLETE": "bash_complete", **given}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.slow
def test_streams_come_from_the_file_of_the_option(path: Path) -> None:
    found = completed(f"sluicegate stream pause --config {path} --stream ")
    assert found == ["plain,flights", "plain,orders"]
    assert completed(f"sluicegate status --config {path} --stream fl") == ["plain,flights"]
    assert completed(f"sluicegate dead-letters list --config {path} --stream o") == ["plain,orders"]


@pytest.mark.slow
def test_streams_come_from_the_file_of_the_variable(path: Path) -> None:
    found = completed("sluicegate replay verify --stream ", SLUICEGATE_CONFIG=str(path))
    assert found == ["plain,flights", "plain,orders"]


@pytest.mark.slow
def test_regions_are_those_of_the_stream(path: Path) -> None:
    words = f"sluicegate region remove --config {path} --stream flights --region "
    assert completed(words) == ["plain,EWR", "plain,JFK"]
    assert completed(f"sluicegate region remove --config {path} --region m") == ["plain,main"]


@pytest.mark.slow
@pytest.mark.parametrize("content", ["", "streams = 3", "[streams", "[streams]\nflights = 1"])
def test_a_file_without_usable_streams_completes_no_region(content: str, path: Path) -> None:
    path.write_text(content)
    assert completed(f"sluicegate region remove --config {path} --region ") == []


@pytest.mark.slow
def test_formats_and_folders() -> None:
    assert completed("sluicegate init --format ") == ["plain,delta", "plain,iceberg", "plain,paimon"]
    assert completed("sluicegate up --format i") == ["plain,iceberg"]
    assert completed("sluicegate init --table /la") == ["dir,/la"]
    assert completed("sluicegate check --config ow") == ["file,ow"]
