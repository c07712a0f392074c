"""The command line: `sluicegate`."""
