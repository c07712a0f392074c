"""Lines that add files come from outside: only those that every reader takes alike reach the log."""

import contextlib
import json
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sluicegate.events.models import CURRENT_SCHEMA, FileInfo, FilesWritten
from sluicegate.lakes.delta.entries import Entries, Examiner, from_text, to_bytes, to_text
from sluicegate.lakes.delta.log import Log
from sluicegate.lakes.delta.schema import read_schema
from sluicegate.lakes.port import BadFiles, Published
from tests.contracts.lakes.delta_lake import DeltaLake
from tests.contracts.lakes.harness import Stream
from tests.lakes.outcomes import is_refused

pytestmark = pytest.mark.slow

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("name", pa.string()),
        pa.field("at", pa.timestamp("us", tz="UTC")),
        pa.field("day", pa.date32()),
        pa.field("part", pa.string()),
    ]
)
ROWS = pa.record_batch(
    {
        "id": pa.array([1, 2], pa.int64()),
        "name": pa.array(["a", None]),
        "at": pa.array([0, 1_500], pa.timestamp("us", tz="UTC")),
        "day": pa.array([0, 1], pa.date32()),
        "part": pa.array(["p", "p"]),
    }
)


@pytest.fixture
def lake(tmp_path: Path) -> DeltaLake:
    return DeltaLake(tmp_path, SCHEMA, ["part"])


def with_file(event: FilesWritten, **changes: Any) -> FilesWritten:
    (file,) = event.files
    return event.model_copy(update={"files": (file.model_copy(update=changes),)})


def verdict(examiner: Examiner, event: FilesWritten) -> Entries | str:
    try:
        return examiner.examine(event)
    except BadFiles as error:
        return str(error)


def damaged(line: bytes, dice: random.Random) -> bytes:
    """Return a line with a part that is spoiled, in a way that parsers could take."""
    spoiled, at = bytearray(line), dice.randrange(len(line))
    match dice.randrange(4):
        case 0:
            del spoiled[at : at + dice.randint(1, 3)]
        case 1:
            spoiled[at:at] = dice.choice(
                [b" ", b"\\", b'"', b"0", b"\n", b"\t", b"\\n", b"\xc3\xa4", b",", b"e0"]
            )
        case 2:
            start = dice.randrange(len(line))
            spoiled[at : at + 2] = line[start : start + 2]
        case _:
            spoiled[at] = dice.randrange(256)
    return bytes(spoiled)


def test_a_line_of_a_known_partition_is_judged_as_one_of_an_unknown(lake: DeltaLake) -> None:
    event = lake.write(ROWS)
    schema, location = read_schema(Log(lake.storage(None)).load().metadata), event.location
    knowing = Examiner(schema, location)
    knowing.examine(event)
    taken = 0
    for seed in range(10_000):
        line = damaged(event.files[0].metadata, random.Random(seed))
        spoiled = with_file(event, metadata=line)
        found = verdict(knowing, spoiled)
        assert found == verdict(Examiner(schema, location), spoiled)
        taken += not isinstance(found, str)
    assert taken


def added(file: FileInfo) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(file.metadata)["add"]
    return fields


def with_fields(event: FilesWritten, **changes: Any) -> FilesWritten:
    """Change fields of the line; `_` takes one away."""
    fields = {**added(event.files[0]), **changes}
    return with_file(
        event, metadata=to_bytes({"add": {key: value for key, value in fields.items() if value != "_"}})
    )


def with_stats(event: FilesWritten, **changes: Any) -> FilesWritten:
    stats = {**json.loads(added(event.files[0])["stats"]), **changes}
    return with_fields(event, stats=to_text(stats))


def refused(lake: DeltaLake, event: FilesWritten) -> str:
    """Return the text with which the check refuses an event; the publication must refuse it, too."""
    stream = Stream(lake)
    with pytest.raises(BadFiles) as error:
        stream.committer.check([event])
    # Lines of partitions that are known take another way.
    with contextlib.suppress(BadFiles):
        stream.committer.check([lake.write(ROWS)])
    with pytest.raises(BadFiles) as again:
        stream.committer.check([event])
    assert str(again.value) == str(error.value)
    outcome = stream.publish(1, stream.head(1), [event])
    assert is_refused(outcome)
    assert outcome.reason == str(error.value)
    assert lake.versions() == [0]
    return str(error.value)


def test_the_line_describes_the_file(lake: DeltaLake) -> None:
    event = lake.write(ROWS)
    (file,) = event.files
    fields = added(file)
    assert fields["path"] == file.path
    assert fields["partitionValues"] == {"part": "p"} == file.partition
    assert (fields["size"], fields["dataChange"]) == (file.size, True)
    assert json.loads(fields["stats"]) == {
        "numRecords": 2,
        "minValues": {"id": 1, "name": "a", "at": "1970-01-01T00:00:00.000Z", "day": "1970-01-01"},
        "maxValues": {"id": 2, "name": "a", "at": "1970-01-01T00:00:00.002Z", "day": "1970-01-02"},
        "nullCount": {"id": 0, "name": 1, "at": 0, "day": 0},
    }
    stream = Stream(lake)
    stream.committer.check([event])


BLOBS: Mapping[str, Callable[[bytes], bytes]] = {
    "no JSON": lambda blob: b"{",
    "no object": lambda blob: b"[]",
    "not UTF-8": lambda blob: blob.replace(b"data-", b"data\xff"),
    "half of a character": lambda blob: blob.replace(b'"p"', b'"\\ud800"'),
    "another line": lambda blob: blob + b"\n" + blob,
    "a line end in front": lambda blob: b"\n" + blob,
    "a line end inside": lambda blob: blob.replace(b":{", b":\n{", 1),
    "spaces": lambda blob: blob.replace(b":{", b": {", 1),
    "an action beside": lambda blob: blob[:-1] + b',"remove":{"path":"x"}}',
    "an action twice": lambda blob: blob[:-1] + b"," + blob[1:],
    "a field twice": lambda blob: blob.replace(b'"size":', b'"size":1,"size":', 1),
    "not a number": lambda blob: blob.replace(b'"dataChange":true', b'"dataChange":NaN'),
    "out of range": lambda blob: blob.replace(b'"modificationTime":', b'"modificationTime":1e400,"x":', 1),
    "a plain number otherwise": lambda blob: blob.replace(b'"size":', b'"size":0', 1),
    "escapes": lambda blob: blob.replace(b'"add"', b'"\\u0061dd"'),
    "another action": lambda blob: blob.replace(b'{"add"', b'{"cdc"'),
    "too long": lambda blob: blob.replace(b'"p"', b'"' + b"p" * (1 << 20) + b'"'),
    "deep": lambda blob: b"[" * 100_000,
}


@pytest.mark.parametrize("name", BLOBS)
def test_a_line_that_parsers_could_take_in_two_ways_is_refused(lake: DeltaLake, name: str) -> None:
    event = lake.write(ROWS)
    refused(lake, with_file(event, metadata=BLOBS[name](event.files[0].metadata)))


FIELDS: Mapping[str, Mapping[str, Any]] = {
    "no statistics": {"stats": "_"},
    "null": {"stats": None},
    "a deletion vector": {"deletionVector": {"storageType": "u"}},
    "row ids": {"baseRowId": 0},
    "tags": {"tags": {}},
    "another path": {"path": "part=p/data-x.parquet"},
    "an absolute path": {"path": "file:///etc/passwd"},
    "a climbing path": {"path": "../x.parquet"},
    "no data change": {"dataChange": False},
    "a number for true": {"dataChange": 1},
    "another size": {"size": 1},
    "a fractional size": {"size": 1.5},
    "a time before the epoch": {"modificationTime": -1},
    "a text for a time": {"modificationTime": "now"},
    "no partition": {"partitionValues": {}},
    "another partition": {"partitionValues": {"part": "q"}},
    "a partition more": {"partitionValues": {"part": "p", "other": "1"}},
    "a list for a partition": {"partitionValues": {"part": ["p"]}},
    "a number for a partition": {"partitionValues": {"part": 1}},
    "a list of partitions": {"partitionValues": []},
    "an empty text": {"partitionValues": {"part": ""}},
}


@pytest.mark.parametrize("name", FIELDS)
def test_a_field_that_does_not_fit_is_refused(lake: DeltaLake, name: str) -> None:
    refused(lake, with_fields(lake.write(ROWS), **FIELDS[name]))


STATS: Mapping[str, Mapping[str, Any]] = {
    "other rows": {"numRecords": 3},
    "true rows": {"numRecords": True},
    "a field more": {"tightBounds": True},
    "no map": {"minValues": []},
    "an unknown column": {"minValues": {"other": 1}},
    "a column inside": {"nullCount": {"id": {"x": 1}}},
    "more nulls than rows": {"nullCount": {"name": 3}},
    "negative nulls": {"nullCount": {"name": -1}},
    "nulls where none may be": {"nullCount": {"id": 1}},
    "bounds of nulls": {"nullCount": {"name": 2}, "minValues": {"name": "a"}, "maxValues": {}},
    "an upper bound of nulls": {"nullCount": {"day": 2}, "maxValues": {"day": "1970-01-01"}},
    "a text for a number": {"minValues": {"id": "1"}},
    "a number of more bits": {"maxValues": {"id": 2**63}},
    "a number for a text": {"minValues": {"name": 1}},
    "bounds the wrong way": {"minValues": {"id": 5}, "maxValues": {"id": 4}},
    "no time": {"minValues": {"at": "yesterday"}},
    "a time without a zone": {"minValues": {"at": "1970-01-01T00:00:00.000"}},
    "no day": {"maxValues": {"day": "1970-02-30"}},
    "a partition column": {"minValues": {"part": "p"}},
}


@pytest.mark.parametrize("name", STATS)
def test_statistics_that_mislead_readers_are_refused(lake: DeltaLake, name: str) -> None:
    refused(lake, with_stats(lake.write(ROWS), **STATS[name]))


def test_statistics_that_are_ambiguous_are_refused(lake: DeltaLake) -> None:
    event = lake.write(ROWS)
    stats = added(event.files[0])["stats"]
    refused(lake, with_fields(event, stats=stats.replace('"numRecords":2', '"numRecords":2,"numRecords":2')))
    refused(lake, with_fields(event, stats=stats[:-1]))
    refused(lake, with_fields(event, stats=stats.replace(":2", ": 2")))


PATHS = (
    "part=p/../x.parquet",
    "part=p/deeper/x.parquet",
    "part=q/data-x.parquet",
    "data-x.parquet",
    "_delta_log/x.parquet",
    "part=p/.hidden.parquet",
    "part=p/_hidden.parquet",
    "part=p/x.json",
    "part=p/x%2F..%2Fy.parquet",
    "part=p/",
    "part=p/x y.parquet",
    "part=p//x.parquet",
)


@pytest.mark.parametrize("path", PATHS)
def test_a_path_outside_of_the_folder_of_its_partition_is_refused(lake: DeltaLake, path: str) -> None:
    event = with_fields(lake.write(ROWS), path=path.replace("%", "%25").replace(" ", "%20"))
    assert "is no data file in the folder 'part=p'" in refused(lake, with_file(event, path=path))


def test_an_event_that_contradicts_its_lines_is_refused(lake: DeltaLake) -> None:
    event = lake.write(ROWS)
    wrong: list[dict[str, Any]] = [{"rows": 3}, {"size": 1}, {"partition": {"part": "q"}}, {"partition": {}}]
    for changes in wrong:
        refused(lake, with_file(event, **changes))
    refused(lake, event.model_copy(update={"schema_id": 5}))


def test_an_event_that_states_no_schema_has_the_current_one(lake: DeltaLake) -> None:
    body = lake.write(ROWS).model_dump(mode="json", exclude={"schema_id"})
    event, stream = FilesWritten.model_validate(body), Stream(lake)
    assert event.schema_id == CURRENT_SCHEMA
    outcome = stream.publish(1, stream.head(1), stream.committer.check([event]))
    assert isinstance(outcome, Published)


def test_a_folder_that_leads_out_of_the_table_is_refused(lake: DeltaLake, tmp_path: Path) -> None:
    event = lake.write(ROWS)
    folder = lake.root / "part=p"
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    assert "leads out" in refused(lake, event)


@pytest.mark.parametrize(
    "value", [None, True, 0, -1, 2**70, 0.1, 1e22, "ä€😀\n\u2028", [], {}, {"a": [1, {"b": None}]}]
)
def test_a_text_is_canonical_if_it_is_made_from_its_value(value: object) -> None:
    assert from_text(to_text(value)) == value
    with pytest.raises(ValueError, match=r"."):
        from_text(to_text(value) + " ")
