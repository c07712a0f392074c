"""New columns of Iceberg tables beside commits of others, and with outcomes that are not known."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sluicegate.events.problems import Cause, CauseCode
from sluicegate.failpoints.names import Failpoint
from sluicegate.failpoints.points import VARIABLE
from sluicegate.lakes.iceberg.catalog import Catalog
from sluicegate.lakes.iceberg.committer import IcebergCommitter
from sluicegate.lakes.iceberg.files import Files
from sluicegate.lakes.iceberg.metadata import MAIN, Change, Metadata
from sluicegate.lakes.iceberg.new_columns import add_columns
from sluicegate.lakes.iceberg.table import TableView
from sluicegate.lakes.new_columns import evolve
from sluicegate.lakes.port import Absent, Conflict, Found, LakeUnavailable, Published
from tests.contracts.lakes import evolver
from tests.contracts.lakes.harness import USER, Fault, Stream
from tests.contracts.lakes.iceberg_lake import IcebergLake, Killed
from tests.contracts.lakes.iceberg_rest_lake import ALL_ICEBERG, RestLake, iceberg_of
from tests.doubles.proxy import Effect, Proxy
from tests.iceberg_java.java import RestCatalogServer
from tests.lakes.iceberg.reading import duck_rows

NOTE = pa.schema([("id", pa.int64()), ("note", pa.string())])


def gain(lake: IcebergLake, schema: pa.Schema = NOTE, **options: str) -> None:
    evolve(lake.adapter, lake.adapter.parse_table(lake.location, options), schema)


def rows(lake: IcebergLake) -> list[tuple[Any, ...]]:
    """Return the rows that pyiceberg and DuckDB agree on."""
    names = [field.name for field in lake.table.schema().fields]
    quoted = ", ".join(f'"{name}"' for name in names)
    found = [tuple(row[name] for name in names) for row in lake.rows()]
    assert sorted(duck_rows(lake, quoted), key=repr) == sorted(found, key=repr)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL_ICEBERG)
@pytest.mark.parametrize("fault", [Fault.LOST, Fault.LANDED])
def test_an_unknown_outcome_is_read_back(
    request: pytest.FixtureRequest, tmp_path: Path, name: str, fault: Fault
) -> None:
    lake = iceberg_of(name, request, tmp_path)
    catalog = lake.faulty(Files(), fault)
    base = catalog.load()

    def change() -> bool:
        return add_columns(catalog, base, TableView(base), [NOTE.field("note")])

    if fault is Fault.LANDED:
        assert change() is True
    else:
        with pytest.raises(LakeUnavailable, match="injected"):
            change()
        assert lake.schemas() == 1
        gain(lake)
    assert lake.schemas() == 2
    # What was seen is not the newest schema any more.
    assert change() is False
    assert lake.schemas() == 2
    catalog.close()


@pytest.fixture
def proxy(iceberg_rest: RestCatalogServer) -> Any:
    with Proxy(iceberg_rest.uri) as found:
        yield found


@pytest.mark.parametrize(
    ("effect", "status"),
    [
        (Effect.LOST_AFTER, 0),
        *((Effect.ANSWERED_AFTER, status) for status in (400, 403, 409, 429, 500, 503)),
        (Effect.REPEATED, 0),
        (Effect.NO_JSON, 0),
    ],
)
def test_columns_are_found_though_the_answer_is_lost_or_wrong(
    proxy: Proxy, iceberg_rest: RestCatalogServer, unique: str, tmp_path: Path, effect: Effect, status: int
) -> None:
    lake = RestLake(iceberg_rest, unique, tmp_path)
    proxy.strike(effect, status)
    gain(lake, uri=proxy.uri)
    assert lake.schemas() == 2


@pytest.mark.parametrize("status", [0, 403, 500, 503])
def test_columns_that_may_be_lost_are_added_by_the_repetition(
    proxy: Proxy, iceberg_rest: RestCatalogServer, unique: str, tmp_path: Path, status: int
) -> None:
    lake = RestLake(iceberg_rest, unique, tmp_path)
    proxy.strike(Effect.ANSWERED_BEFORE if status else Effect.LOST_BEFORE, status)
    with pytest.raises(LakeUnavailable):
        gain(lake, uri=proxy.uri)
    assert lake.schemas() == 1
    gain(lake, uri=proxy.uri)
    assert lake.schemas() == 2


class Late:
    """A catalog in which something happens right before its first change."""

    def __init__(self, inner: Catalog, act: Callable[[], None]) -> None:
        self._inner = inner
        self._acts = [act]
        self.reads_files = inner.reads_files
        self.load, self.create, self.close = inner.load, inner.create, inner.close

    def commit(self, base: Metadata, change: Change, files: Mapping[str, bytes]) -> bool:
        if self._acts:
            self._acts.pop()()
        return self._inner.commit(base, change, files)


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL_ICEBERG)
@pytest.mark.parametrize("theirs", ["append", "column", "same"])
def test_a_change_of_others_at_the_same_time_is_kept(
    request: pytest.FixtureRequest, tmp_path: Path, name: str, theirs: str
) -> None:
    lake = iceberg_of(name, request, tmp_path)
    acts: dict[str, Callable[[], None]] = {
        "append": lambda: lake.foreign([1]),
        "column": lambda: lake.alter("theirs", pa.int64()),
        "same": lambda: lake.alter("note", pa.string()),
    }
    catalog = Late(lake.catalog(Files()), acts[theirs])
    base = catalog.load()
    made = add_columns(catalog, base, TableView(base), [NOTE.field("note")])
    # A REST catalog takes a schema beside an append of others.
    assert made is (theirs == "append" and "rest" in name)
    gain(lake, NOTE.append(pa.field("theirs", pa.int64())) if theirs == "column" else NOTE)
    names = [field.name for field in lake.table.schema().fields]
    assert names == (["id", "theirs", "note"] if theirs == "column" else ["id", "note"])
    assert lake.schemas() == len(names)
    assert len(lake.rows()) == (1 if theirs == "append" else 0)
    catalog.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["iceberg", "iceberg-v3", "iceberg-rest"])
@pytest.mark.parametrize("changed", [False, True])
def test_a_committer_that_dies_beside_a_change_has_a_successor(
    request: pytest.FixtureRequest, tmp_path: Path, name: str, changed: bool
) -> None:
    """The schema changes right before the step that decides a commit, or right after it."""
    lake = iceberg_of(name, request, tmp_path)
    event = lake.event([1])

    def change_and_die() -> None:
        gain(lake)
        raise Killed

    lake.strand(1, event, change_and_die if changed else lambda: None)
    gain(lake)
    stream = Stream(lake)
    stream.recorded = None
    answer = stream.ask(1)
    assert isinstance(answer, Absent if changed else Found)
    if isinstance(answer, Absent):
        assert isinstance(stream.publish(1, answer.head, stream.committer.check([event])), Published)
    newer = lake.write(pa.record_batch([[2], ["b"]], schema=NOTE))
    assert isinstance(stream.publish(2, stream.head(2), stream.committer.check([newer])), Published)
    assert rows(lake) == [(1, None), (2, "b")]
    assert lake.schemas() == 2


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL_ICEBERG)
def test_a_commit_that_is_under_way_is_not_lost(
    request: pytest.FixtureRequest, tmp_path: Path, name: str
) -> None:
    """A REST catalog takes a snapshot of the older schema. All others take no other change meanwhile."""
    lake = iceberg_of(name, request, tmp_path)
    files, rest = Files(), "rest" in name
    with closing(lake.catalog(files)) as inner:
        committer = IcebergCommitter(Late(inner, lambda: gain(lake)), files, USER, MAIN)
        stream = Stream(lake, committer)
        event = lake.event([1])
        outcome = stream.publish(1, stream.head(1), committer.check([event]))
        assert isinstance(outcome, Published if rest else Conflict)
        newer = lake.write(pa.record_batch([[2], ["b"]], schema=NOTE))
        again = committer.check([newer] if rest else [event, newer])
        assert isinstance(stream.publish(2, stream.head(2), again), Published)
    assert rows(lake) == [(1, None), (2, "b")]
    assert [each["schema-id"] for each in lake.fields()["snapshots"]] == ([0, 1] if rest else [1])


@pytest.mark.slow
@pytest.mark.parametrize("commits", [0, 1])
def test_a_conflict_with_a_change_of_the_schema_names_no_snapshot(tmp_path: Path, commits: int) -> None:
    """No snapshot was put or removed, so the cause speaks of none."""
    lake, files = IcebergLake(tmp_path), Files()
    for number in range(commits):
        Stream(lake).commit(number + 1, [number])
    with closing(lake.catalog(files)) as inner:
        committer = IcebergCommitter(Late(inner, lambda: gain(lake)), files, USER, MAIN)
        stream = Stream(lake, committer)
        events = committer.check([lake.event([5])])
        assert stream.publish(2, stream.head(2), events) == Conflict(cause=Cause(code=CauseCode.OTHER_WRITER))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("point", "left"),
    [(Failpoint.LAKE_PUT_BEFORE, 1), (Failpoint.LAKE_PUT_AFTER, 2), (Failpoint.LAKE_PUT_DURABLE, 2)],
)
def test_a_writer_that_is_killed_leaves_all_or_nothing(tmp_path: Path, point: Failpoint, left: int) -> None:
    lake = IcebergLake(tmp_path)
    options = json.dumps(dict(lake.options or {}))
    command = [sys.executable, str(evolver.__file__), "iceberg", lake.location, options, "7"]
    environment = os.environ | {VARIABLE: f"{point}=kill"}
    killed = subprocess.run(command, input="go\n", capture_output=True, text=True, env=environment)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert lake.schemas() == left
    again = subprocess.run(command, input="go\n", capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert lake.schemas() == 2


@pytest.mark.slow
def test_a_table_that_was_made_again_is_read_again(tmp_path: Path) -> None:
    lake = IcebergLake(tmp_path)
    ref = lake.adapter.parse_table(lake.location)
    seen = lake.adapter.read_columns(ref)
    lake.replace()
    assert lake.adapter.add_columns(ref, [NOTE.field("note")], seen) is False
    assert lake.schemas() == 1
