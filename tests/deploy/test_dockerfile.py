"""The definition of the image passes hadolint."""

from pathlib import Path

import pytest

from tests.deploy.tools import of_this_environment, run
from tests.repository.test_layout import ROOT


@pytest.mark.slow
def test_the_dockerfile_passes() -> None:
    done = run(of_this_environment("hadolint"), ROOT / "Dockerfile")
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.slow
def test_a_mistake_is_noticed(tmp_path: Path) -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    (wrong := tmp_path / "Dockerfile").write_text(text.replace(":3.12-slim", ""), encoding="utf-8")
    assert "DL3006" in run(of_this_environment("hadolint"), wrong).stdout
