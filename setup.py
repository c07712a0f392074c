"""Adds the documents of `sluicegate.documents` to the wheel; pyproject.toml has everything else."""

import os
import subprocess
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithDocuments(build_py):
    """Copies the packages, then makes the documents from the copy."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return  # A checkout has none: nothing reads them at run time.
        built = Path(self.build_lib).resolve()
        command = [sys.executable, "-m", "sluicegate.documents", str(built / "sluicegate" / "schemas")]
        # The copies of an installation must not be older than those of the build. In its isolated build, pip
        # has what the build requires on the path.
        path = os.pathsep.join([str(built), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
        subprocess.run(command, check=True, env=environment)


setup(cmdclass={"build_py": BuildWithDocuments})
