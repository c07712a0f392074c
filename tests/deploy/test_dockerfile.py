"""The definition of the image passes hadolint."""

import pytest

from tests.deploy.tools import of_this_environment, run
from tests.repository.test_layout import ROOT


@pytest.mark.slow
def test_the_dockerfile_passes() -> None:
    done = run(of_this_environment("hadolint"), ROOT / "Dockerfile")
    assert (done.returncode, done.stdout) == (0, "")
