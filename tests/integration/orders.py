"""The command line on a test's deployment."""

import asyncio

from click.testing import CliRunner

from sluicegate.coordinator.cli import main
from tests.integration.conftest import Place


async def sluicegate(place: Place, *arguments: str) -> str:
    """Run a command; returns what it printed. Fails if the command does."""
    config = place.root / "sluicegate.toml"
    config.write_text(
        f'[kafka]\nbootstrap_servers = "{place.bootstrap}"\ntopic_prefix = "{place.prefix}"\n'
        f'group_id = "{place.prefix}"\n[streams.flights]\ntable = "{place.table}"\n'
    )
    environment = {"SLUICEGATE_CONFIG": str(config)}
    result = await asyncio.to_thread(CliRunner().invoke, main, list(arguments), env=environment)
    assert result.exit_code == 0, result.output
    return result.output
