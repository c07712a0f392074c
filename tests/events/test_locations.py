"""Where a stream's files may stand."""

import json

import pytest

from sluicegate.events.files import is_allowed_table, is_same_place, location_problem, normal
from sluicegate.events.models import FileInfo, FilesWritten
from sluicegate.events.problems import Cause, CauseCode, Code, Problem

ALLOWED = ("file:///lake/flights.db/flights", "s3://bucket/lake/")


@pytest.mark.parametrize(
    ("table", "allowed"),
    [
        *((None, each) for each in ALLOWED),
        ("file:///lake/flights.db/flights", ALLOWED[0]),
        ("file:/lake/flights.db/flights/", ALLOWED[0]),
        ("/lake/flights.db/./flights", ALLOWED[0]),
        ("s3://bucket/lake/flights", ALLOWED[1]),
        ("s3://bucket//lake/t", "s3://bucket/lake"),
        ("s3://bucket/lake/t", "s3://bucket//lake//"),
        ("file:///lake/a%20b/t", "file:///lake/a b"),
        ("/lake/a b/t", "file:///lake/a%20b/"),
        ("gs://bucket/lake/t/", "gs://bucket/lake/t"),
        ("abfss://lake@account.dfs.core.windows.net/t", "abfss://lake@account.dfs.core.windows.net/"),
    ],
)
def test_a_table_inside_of_an_allowed_location_in_any_form(table: str | None, allowed: str) -> None:
    assert is_allowed_table(table, [allowed])


@pytest.mark.parametrize(
    "table",
    [
        "file:///lake/flights.db/flights2",
        "file:///lake/flights.db/flights/../other",
        "file:///lake/flights.db",
        "s3://other/lake/flights",
        "hdfs://lake/flights.db/flights",
        "s3://bucket/lake2",
        "s3://bucket2/lake",
        "gs://bucket/lake",
        "s3://bucket/%6cake",
        "s3://BUCKET/lake",
    ],
)
def test_a_table_outside_of_the_allowed_locations(table: str) -> None:
    assert not is_allowed_table(table, ALLOWED)


@pytest.mark.parametrize(
    ("location", "canonical"),
    [
        ("/lake/a b/./t/", "file:///lake/a%20b/t"),
        ("file:////lake//a%20b/t/", "file:///lake/a%20b/t"),
        ("file:/lake/%74", "file:///lake/t"),
        ("file:///lake/caf\u00e9", "file:///lake/caf%C3%A9"),
        ("s3://bucket//lake//t/", "s3://bucket/lake/t"),
        ("S3://bucket/lake/./t", "s3://bucket/lake/t"),
        ("s3://bucket/", "s3://bucket"),
        ("s3://bucket/a%20b", "s3://bucket/a%20b"),
        ("memory://numbers", "memory://numbers"),
    ],
)
def test_each_folder_has_one_form(location: str, canonical: str) -> None:
    assert normal(location) == canonical
    assert normal(canonical) == canonical


def written(path: str, location: str = "s3://bucket/lake/t") -> FilesWritten:
    """An event of a stranger, whose path no model has looked at."""
    file = FileInfo.model_construct(path=path, size=1, rows=1, partition={}, metadata=b"")
    return FilesWritten.model_construct(
        format="paimon", format_version=1, location=location, schema_id=0, files=(file,)
    )


@pytest.mark.parametrize(
    "path",
    [
        "bucket-0/data-1.parquet",
        "dt=2026%2F11%2F21/bucket-0/data.parquet",
        "dt=a%2F..%2Fb/bucket-0/data.parquet",
        "dt=50%25/bucket-0/x",
        "dt=%0A/bucket-0/x",
        "dt=10%3A30/bucket-0/x",
        "dt=caf\u00e9\u00a0/x",
        "a..b/..c/d..",
    ],
)
def test_paths_of_partitions_stay_inside(path: str) -> None:
    assert location_problem(written(path), ALLOWED) is None


@pytest.mark.parametrize(
    "path",
    [
        "../x",
        "a/../../x",
        "a/../x",
        "/etc/passwd",
        "file:///etc/passwd",
        "s3://other/x",
        "a/\x00/x",
        "a\nb",
        "%2e%2e/x",
        "a/%2E%2e/x",
        "%2e%2e%2fx",
        "%252e%252e/x",
        "%25252e%25252e/x",
        "a%2f..%2f..%2fx",
        "%2Fetc/passwd",
        "s3%3A//other/x",
    ],
)
def test_paths_that_lead_out_are_refused_however_they_are_written(path: str) -> None:
    problem = location_problem(written(path), ALLOWED)
    assert problem is not None
    assert problem.code is Code.PATH_ESCAPES
    assert problem.names[0] == path


@pytest.mark.parametrize(
    "location",
    [
        "s3://bucket/lake/../other",
        "s3://bucket/lake/%2e%2e/other",
        "s3://bucket/lake/%252e%252e/other",
        "s3://bucket/lake/a%2f..%2f..%2fother",
        "s3://bucket/lake2",
        "s3://bucket.evil/lake/t",
        "s3://bucket@evil/lake/t",
        "s3a://bucket/lake2/t",
        "gs://bucket/lake/t",
        "https://bucket/lake/t",
        "//bucket/lake/t",
        "s3://bucket/lake/t?x=/../..",
        "s3://bucket/lake/t#/../..",
        "s3://bucket/lake/\x00",
        "file://evil/lake/flights.db/flights",
        "file:///lake/flights.db/flights/../../x",
        "file:///lake/flights.db/flights%2f..%2f..%2fx",
        "/lake/flights.db/flights/../../x",
        "lake/flights.db/flights",
        "",
    ],
)
def test_locations_outside_are_refused_however_they_are_written(location: str) -> None:
    assert location_problem(written("a", location), ALLOWED) is not None


@pytest.mark.parametrize(
    ("location", "cause"),
    [
        ("s3://bucket/lake/\x00", Cause(code=CauseCode.CONTROL_CHARACTERS)),
        ("s3://bucket/lake/t?x=/../..", Cause(code=CauseCode.QUERY_IN_LOCATION)),
        ("s3://bucket/lake/t#/../..", Cause(code=CauseCode.QUERY_IN_LOCATION)),
        ("file://evil/lake/flights.db/flights", Cause(code=CauseCode.OTHER_MACHINE, names=("evil",))),
        ("//evil/lake/flights.db/flights", Cause(code=CauseCode.OTHER_MACHINE, names=("evil",))),
        ("s3://bucket/lake/%252e%252e/other", Cause(code=CauseCode.ENCODED_DOTS)),
    ],
)
def test_an_ambiguous_location_is_refused_with_its_cause(location: str, cause: Cause) -> None:
    expected = Problem(code=Code.LOCATION_AMBIGUOUS, names=(location,), cause=cause)
    assert location_problem(written("a", location), ALLOWED) == expected


def test_a_path_in_json_escapes_is_read_before_it_is_judged() -> None:
    body = json.loads(written("a").model_dump_json())
    body["files"][0]["path"] = "X"
    text = json.dumps(body).replace('"X"', r'"\u002e\u002e/x"')
    with pytest.raises(ValueError, match="relative"):
        FilesWritten.model_validate_json(text)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("file:/x/t", "file:///x/t/", True),
        ("/x/a b", "file://localhost/x/a%20b", True),
        ("s3a://bucket/lake/t", "s3://bucket/lake/t/", True),
        ("S3N://bucket/lake/t", "s3://bucket/lake/t", True),
        ("abfs://c@a.dfs.core.windows.net/t", "abfss://c@a.dfs.core.windows.net/t", True),
        ("s3://bucket/a%20b", "s3://bucket/a b", False),
        ("s3://bucket/lake", "s3://Bucket/lake", False),
        ("s3://bucket/lake", "gs://bucket/lake", False),
        ("s3://bucket/lake", "s3://bucket/lake/t", False),
        ("file://evil/x", "file:///x", False),
        ("file:///x/%2e%2e/y", "file:///y", False),
    ],
)
def test_two_texts_of_one_place_are_the_same_and_others_are_not(one: str, other: str, same: bool) -> None:
    assert is_same_place(one, other) is same
    if same:
        assert location_problem(written("a", one), [other]) is None
        assert location_problem(written("a", other), [one]) is None
