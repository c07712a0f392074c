"""`sluicegate servers`: run Kafka and Valkey on this machine, to try the service without containers."""

import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from sluicegate.cli.errors import UserError
from sluicegate.cli.interrupting import until_interrupted

if TYPE_CHECKING:
    from sluicegate.embedded import EmbeddedKafka, EmbeddedValkey

_LOOK: Final = 0.5
"""Seconds between two checks that both servers run."""

PORT: Final = click.IntRange(1, 65_535)


folder_option = click.option(
    "--dir",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    help="Where Kafka's data, settings and logs are kept; the next start goes on with them.",
)


@click.command()
@folder_option
@click.option("--kafka-port", type=PORT, default=9092, show_default=True, help="Port of Kafka.")
@click.option("--valkey-port", type=PORT, default=6379, show_default=True, help="Port of Valkey.")
def servers(folder: Path, kafka_port: int, valkey_port: int) -> None:
    """Run Kafka and Valkey on this machine until Ctrl-C, and print the settings to use.

    For tests only: one broker, on the loopback interface, without passwords. Valkey does not persist its
    data.
    """
    from sluicegate.embedded import EmbeddedError, EmbeddedKafka, EmbeddedValkey

    log_fetches()
    kafka = EmbeddedKafka(folder / "kafka", kafka_port)
    valkey = EmbeddedValkey(folder / "valkey", valkey_port)
    try:
        with until_interrupted():
            click.echo(f"starting Kafka and Valkey in {folder}", err=True)
            with valkey, kafka:
                click.echo(_settings(kafka, valkey))
                click.echo("both run until Ctrl-C", err=True)
                while True:
                    require_running(kafka, valkey)
                    time.sleep(_LOOK)
    except (EmbeddedError, OSError) as error:
        raise UserError(str(error)) from error
    click.echo("both have ended", err=True)


def _settings(kafka: "EmbeddedKafka", valkey: "EmbeddedValkey") -> str:
    return f'[kafka]\nbootstrap_servers = "{kafka.bootstrap}"\n\n[redis]\nurl = "{valkey.url}"'


def log_fetches() -> None:
    """Print what the embedded package logs: the first start downloads Kafka, which takes a while."""
    logging.basicConfig(format="%(message)s")
    logging.getLogger("sluicegate.embedded").setLevel(logging.INFO)


def require_running(*servers: "EmbeddedKafka | EmbeddedValkey") -> None:
    """Raise UserError if one of the servers has ended by itself."""
    for server in servers:
        if not server.running:
            raise UserError(f"{server.name} has ended by itself; see {server.log_file}")
