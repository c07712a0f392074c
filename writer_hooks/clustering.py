"""Option of the columns by which ForeachBatch moves rows together."""

from collections.abc import Mapping
from typing import Final

from sluicegate.writer_hooks.errors import BadOption

_OPTION: Final = "cluster.by"


def cluster_by(options: Mapping[str, str]) -> tuple[str, ...]:
    """Return the columns, none without the option. Names of options are in lower case. Raises BadOption."""
    given = options.get(_OPTION)
    if given is None:
        return ()
    columns = tuple(part.strip() for part in given.split(","))
    if not all(columns) or len(set(columns)) != len(columns):
        raise BadOption(f"the option {_OPTION} must list columns, each once, with commas between: {given!r}")
    return columns


def refuse_cluster_by(options: Mapping[str, str]) -> None:
    """Raise BadOption if the option is given to a sink that cannot move rows."""
    if cluster_by({name.lower(): value for name, value in options.items()}):
        raise BadOption(
            "the option cluster.by is for ForeachBatch, because other sinks get rows that are in place "
            "already. Cluster the rows before the write, or use foreachBatch(ForeachBatch(options))"
        )
