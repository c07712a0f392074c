"""Calls of `docker compose` for the deployment of docker-compose.yml."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.servers import COMPOSE_FILE


@dataclass(frozen=True, slots=True)
class Compose:
    """One deployment: a project name, and a folder for its settings."""

    project: str
    folder: Path

    def command(self, *arguments: str) -> list[str]:
        """Return the command line of a call."""
        return ["docker", "compose", "--project-name", self.project, "--file", str(COMPOSE_FILE), *arguments]

    def call(self, *arguments: str, given: str | None = None) -> str:
        """Make a call, with `given` as its input, and return its output.

        Raises:
            AssertionError: it failed; with the end of its output.
        """
        environment = {**os.environ, "SLUICEGATE_CONFIG": str(self.folder / "sluicegate.toml")}
        done = subprocess.run(
            self.command(*arguments),
            env=environment,
            input=given,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        return done.stdout

    def in_the_image(self, *arguments: str, given: str | None = None) -> str:
        """Run a program in a new container, with the image, network and volumes of the coordinator."""
        return self.call("run", "--rm", "--no-deps", "-T", "coordinator", *arguments, given=given)
