"""The systemd unit is valid, hardened, and agrees with the service."""

import configparser
import re
from pathlib import Path
from typing import Final

import pytest

from sluicegate.coordinator.service import service
from tests.deploy.tools import of_the_system, of_this_environment, run
from tests.repository.test_layout import ROOT

UNIT: Final = ROOT / "deploy" / "systemd" / "sluicegate.service"
PROGRAM: Final = "/opt/sluicegate/bin/sluicegate"
THRESHOLD: Final = 20
"""Largest exposure, in tenths: systemd calls up to 2.0 OK."""


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """Give the unit with a program that exists here."""
    copy = tmp_path / UNIT.name
    text = UNIT.read_text(encoding="utf-8")
    copy.write_text(text.replace(PROGRAM, str(of_this_environment("sluicegate"))), encoding="utf-8")
    return copy


def analyze(*arguments: str | Path) -> tuple[int, str]:
    done = run(of_the_system("systemd-analyze", "Debian: systemd"), *arguments)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
def test_the_unit_is_valid(unit: Path) -> None:
    status, shown = analyze("verify", unit)
    assert status == 0, shown
    # The host's own units may have flaws too.
    assert "sluicegate" not in shown


def test_the_unit_is_hardened(unit: Path) -> None:
    status, shown = analyze("security", "--offline=true", f"--threshold={THRESHOLD}", "--no-pager", unit)
    assert status == 0, shown
    unit.write_text(re.sub("(?m)^(Protect|Private|Restrict|Capability|SystemCall).*\n", "", unit.read_text()))
    assert analyze("security", "--offline=true", f"--threshold={THRESHOLD}", "--no-pager", unit)[0] != 0


def test_the_unit_agrees_with_the_service() -> None:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(UNIT.read_text(encoding="utf-8"))
    section = parser["Service"]
    assert float(section["TimeoutStopSec"]) > 2 * (service.GRACE + service.LAST_WORDS)
    assert section["ExecStart"] == f"{PROGRAM} run --config /etc/sluicegate/sluicegate.toml"
    folder = section["Environment"].partition("=")[2]
    assert Path(folder).is_relative_to(Path("/var/lib") / section["StateDirectory"])
    user = (UNIT.parent / "sluicegate.sysusers.conf").read_text(encoding="utf-8")
    assert re.search(rf"^u {section['User']} ", user, re.MULTILINE)
