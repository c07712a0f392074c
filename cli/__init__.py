"""The command line: `sluicegate`."""

from sluicegate.cli.main import main

__all__ = ["main"]
