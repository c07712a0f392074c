"""Read the tables of one stream as of one commit, with pyiceberg. It shares no code with Sluicegate.

    python examples/read_tables.py sqlite:////lake/catalog.db sluicegate-shop shop.orders items=shop.items

The arguments are the catalog, the commit user of the stream (`sluicegate-` and its name), its anchor, and its
further tables, as streams.NAME.tables has them. docs/tables.md explains the rule.
"""

import json
import sys
from collections.abc import Mapping
from contextlib import closing
from typing import NamedTuple

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import DataScan, Table

TRIES = 10
"""Each try follows a commit that came between two reads of the catalog."""


class AsOf(NamedTuple):
    """A table, and the snapshot to read of it; None: it has none yet."""

    table: Table
    snapshot: int | None

    def scan(self) -> DataScan:
        """Return a scan of the table as of that snapshot."""
        return self.table.scan(snapshot_id=self.snapshot)


def at_one_commit(catalog: Catalog, anchor: str, further: Mapping[str, str], user: str) -> dict[str, AsOf]:
    """Return the anchor, under the name "anchor", and the further tables by name, all as of one commit."""
    for _ in range(TRIES):
        first = catalog.load_table(anchor)
        if (text := first.properties.get(f"sluicegate.cut.{user}")) is None:
            raise LookupError(f"{anchor} has no commit of {user} with further tables")
        cut = json.loads(text)
        if unknown := further.keys() - cut["tables"].keys():
            known = ", ".join(cut["tables"]) or "none"
            raise LookupError(f"the stream has no tables {', '.join(sorted(unknown))}; it has {known}")
        found = {"anchor": as_of(first, user, cut["decision"], cut["anchor"])}
        for name, identifier in further.items():
            decision, snapshot = cut["tables"][name]
            found[name] = as_of(catalog.load_table(identifier), user, decision, snapshot)
        tables = {name: each for name, each in found.items() if each is not None}
        if len(tables) == len(found):
            return tables
    lacking = ", ".join(sorted(found.keys() - tables.keys()))
    raise TimeoutError(
        f"{lacking} does not show commit {cut['decision']} in {TRIES} tries. Its snapshots expire too soon, "
        "or somebody has rolled it back: see `sluicegate status`"
    )


def as_of(table: Table, user: str, decision: int, snapshot: int | None) -> AsOf | None:
    """Return a table as of a commit; None if it does not show that, or not any more."""
    if snapshot is not None and table.snapshot_by_id(snapshot) is not None:
        return AsOf(table, snapshot)
    newest = table.current_snapshot()
    if newest_of(table, user) != decision:
        return None
    return AsOf(table, newest.snapshot_id if newest is not None else None)


def newest_of(table: Table, user: str) -> int | None:
    """Return the newest commit of a user in a table; 0: it has none; None: nothing shows that.

    The history counts. If it ends before, since older snapshots have expired, the table's mark names the
    commit. A mark survives a rollback: then its snapshot is listed aside, or is newer than the newest one.
    """
    newest = each = table.current_snapshot()
    while each is not None:
        if each.summary is not None and each.summary.get("sluicegate.user") == user:
            return int(each.summary["sluicegate.decision"] or 0)
        each = table.snapshot_by_id(each.parent_snapshot_id) if each.parent_snapshot_id else None
    uuid, *rest = table.properties.get(f"sluicegate.committed.{user}", "").split(":")
    if uuid != str(table.metadata.table_uuid):
        return 0
    decision, sequence, snapshot = map(int, rest[:3])
    there = newest is not None and sequence <= (newest.sequence_number or 0)
    return decision if there and table.snapshot_by_id(snapshot) is None else None


def main(uri: str, user: str, anchor: str, further: Mapping[str, str]) -> None:
    """Print the snapshot and the rows of each table."""
    with closing(SqlCatalog("default", uri=uri)) as catalog:
        for name, each in at_one_commit(catalog, anchor, further, user).items():
            print(f"{name}: snapshot {each.snapshot}, {each.scan().to_arrow().num_rows} rows")


if __name__ == "__main__":
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    uri, user, anchor, *further = sys.argv[1:]
    main(uri, user, anchor, dict(each.split("=", 1) for each in further))
