"""A real Prometheus as a child process."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import aiohttp
import yaml

from sluicegate.cli.local.process import free_port
from tests.integration.waiting import watched
from tests.monitoring.files import RULES


@dataclass
class Prometheus:
    """A running server."""

    url: str
    process: subprocess.Popen[bytes]

    async def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the series of an instant query. Raises ValueError if the server refuses it."""
        answer = await self._get("query", query=expression)
        result = answer["result"]
        return [{"metric": {}, "value": result}] if answer["resultType"] == "scalar" else result

    async def rules(self) -> list[dict[str, Any]]:
        """Return the rules with their health."""
        return [rule for group in (await self._get("rules"))["groups"] for rule in group["rules"]]

    async def targets(self) -> list[dict[str, Any]]:
        """Return the targets with their health; none until the server answers."""
        try:
            found: list[dict[str, Any]] = (await self._get("targets"))["activeTargets"]
        except aiohttp.ClientConnectionError:
            return []
        return found

    async def _get(self, path: str, **arguments: str) -> Any:
        url = f"{self.url}/api/v1/{path}?{urlencode(arguments)}"
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            # A server that starts answers with a text and 503.
            if answer.status == 503:
                raise aiohttp.ClientConnectionError("it is starting")
            body = await answer.json()
        if body["status"] != "success":
            raise ValueError(body["error"])
        return body["data"]


@contextmanager
def prometheus(program: str, folder: Path, target: int) -> Iterator[Prometheus]:
    """Run a server that scrapes this port each second, with the rules of the repository."""
    port = free_port()
    settings = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [
            {"job_name": "sluicegate", "static_configs": [{"targets": [f"127.0.0.1:{target}"]}]}
        ],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    command = [
        program,
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            with watched(process):
                yield Prometheus(f"http://127.0.0.1:{port}", process)
        finally:
            process.terminate()
            process.wait()
