"""Calls of `docker compose` for the deployment of docker-compose.yml."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.servers import COMPOSE_FILE

EXAMPLES = COMPOSE_FILE.parent / "examples"


@dataclass(frozen=True, slots=True)
class Compose:
    """One deployment: a project name, and a file of settings in place of the default one."""

    project: str
    settings: Path | None = None

    def command(self, *arguments: str) -> list[str]:
        """Return the command line of a call."""
        return ["docker", "compose", "--project-name", self.project, "--file", str(COMPOSE_FILE), *arguments]

    def call(self, *arguments: str) -> str:
        """Make a call, and return its output.

        Raises:
            AssertionError: it failed; with the end of its output.
        """
        environment = {name: value for name, value in os.environ.items() if name != "SLUICEGATE_CONFIG"}
        if self.settings is not None:
            environment["SLUICEGATE_CONFIG"] = str(self.settings)
        done = subprocess.run(
            self.command(*arguments), env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        return done.stdout

    def example(self, name: str, *arguments: str) -> list[str]:
        """Run an example in a new container, with the image, network and volumes of the coordinator."""
        command = ["run", "--rm", "--no-deps", "-T", "--volume", f"{EXAMPLES}:/examples:ro"]
        command += ["--entrypoint", "python", "coordinator", f"/examples/{name}", *arguments]
        return self.call(*command).splitlines()
