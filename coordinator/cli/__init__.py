"""The command line: `sluicegate`."""

from sluicegate.coordinator.cli.main import main

__all__ = ["main"]
