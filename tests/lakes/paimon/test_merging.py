"""Small manifests are put together, and nothing else changes by it."""

import json
import os
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pypaimon.manifest.schema.manifest_file_meta import MANIFEST_FILE_META_SCHEMA

from sluicegate.lakes.paimon.manifests import MIN_COUNT, plan
from tests.contracts.lakes.harness import Stream, with_commits
from tests.contracts.lakes.paimon_lake import PaimonLake
from tests.lakes.outcomes import is_refused
from tests.lakes.paimon import reading

TARGET = 8 << 20


def meta(name: str, size: int = 2_000, deleted: int = 0) -> dict[str, Any]:
    return {
        "_VERSION": 2,
        "_FILE_NAME": name,
        "_FILE_SIZE": size,
        "_NUM_ADDED_FILES": 1,
        "_NUM_DELETED_FILES": deleted,
        "_PARTITION_STATS": {"_MIN_VALUES": b"x", "_MAX_VALUES": b"x", "_NULL_COUNTS": []},
    }


def metas(count: int, size: int = 2_000) -> list[dict[str, Any]]:
    return [meta(f"m{number}", size) for number in range(count)]


FEW, MANY = MIN_COUNT - 1, MIN_COUNT


@pytest.mark.parametrize(
    ("listed", "excluded", "runs"),
    [
        (metas(FEW), set(), []),
        (metas(MANY), set(), [(0, MANY)]),
        ([*metas(MANY), meta("d", deleted=1), *metas(MANY)], set(), [(0, MANY), (MANY + 1, 2 * MANY + 1)]),
        ([*metas(FEW), meta("full", TARGET), *metas(FEW)], set(), []),
        (metas(MANY), {"m3"}, []),
    ],
    ids=["few", "many", "a deletion stays in its place", "a full one", "an excluded one"],
)
def test_runs_of_many_small_manifests_become_one(
    listed: list[dict[str, Any]], excluded: set[str], runs: list[tuple[int, int]]
) -> None:
    assert plan(listed, TARGET, excluded) == runs


def test_one_merge_never_copies_much_more_than_a_full_manifest() -> None:
    runs = plan(metas(100, TARGET // 4), TARGET, set())
    assert runs
    assert all((end - start) * (TARGET // 4) <= 2 * TARGET for start, end in runs)


@pytest.mark.slow
def test_the_list_stays_short_over_many_commits(lake: PaimonLake) -> None:
    stream = Stream(lake)
    sizes = []
    for decision in range(1, 151):
        stream.commit(decision, [decision])
        sizes.append(len(reading.manifests(lake.root, decision)))
    assert max(sizes) <= MIN_COUNT + 1
    assert lake.ids() == list(range(1, 151))
    assert reading.rows(lake.root, 150).column("id").to_pylist() == list(range(1, 151))
    for number in (1, 29, 30, 31, 60, 100):
        assert reading.rows(lake.root, number).num_rows == number


@pytest.mark.slow
def test_deletions_by_others_still_hit(lake: PaimonLake) -> None:
    """An overwrite deletes files; commits and merges after it must not bring them back."""
    stream = with_commits(lake, 40)
    builder = lake.table.new_batch_write_builder().overwrite({})
    write, commit = builder.new_write(), builder.new_commit()
    write.write_arrow(pa.table({"id": pa.array([5_000], pa.int64())}))
    commit.commit(write.prepare_commit())
    commit.close()
    write.close()
    assert lake.ids() == [5_000]
    for decision in range(41, 121):
        stream.commit(decision, [decision])
    assert lake.ids() == [*range(41, 121), 5_000]
    assert reading.snapshot(lake.root, 121)["totalRecordCount"] == 81


def rewrite_list(
    lake: PaimonLake, stream: Stream, which: str, schema: dict[str, Any], extra: dict[str, Any]
) -> None:
    """Write the head's list again, and its size in the snapshot, as another product would have."""
    number = lake.snapshot_ids()[-1]
    name = reading.snapshot(lake.root, number)[f"{which}ManifestList"]
    lines = [{**line, **extra} for line in reading.records(lake.root, name)]
    os.unlink(lake.root / "manifest" / name)
    with open(lake.root / "manifest" / name, "wb") as file:
        fastavro.writer(file, schema, lines, codec="zstandard")
    path = lake.root / "snapshot" / f"snapshot-{number}"
    size = (lake.root / "manifest" / name).stat().st_size
    path.write_text(json.dumps({**json.loads(path.read_text()), f"{which}ManifestListSize": size}))
    stream.recorded = lake.committer().inspect().head


def other_schema(*more: dict[str, Any]) -> dict[str, Any]:
    fields = [*MANIFEST_FILE_META_SCHEMA["fields"], *more]
    return {"type": "record", "name": "org.apache.paimon.avro.generated.record", "fields": fields}


@pytest.mark.slow
@pytest.mark.parametrize("which", ["base", "delta"])
def test_lists_of_another_schema_are_written_anew(lake: PaimonLake, which: str) -> None:
    stream = with_commits(lake, 2)
    rewrite_list(
        lake, stream, which, other_schema({"name": "_NEW", "type": ["null", "long"]}), {"_NEW": None}
    )
    stream.commit(3, [3])
    assert lake.ids() == [1, 2, 3]
    assert len(reading.manifests(lake.root, 3)) == 3


def test_lists_that_say_more_than_we_know_are_not_rewritten(lake: PaimonLake) -> None:
    stream = with_commits(lake, 1)
    rewrite_list(lake, stream, "delta", other_schema({"name": "_NEW", "type": ["null", "long"]}), {"_NEW": 7})
    outcome = stream.publish(2, stream.head(2), [lake.event([2])])
    assert is_refused(outcome)
    assert "_NEW" in outcome.reason
