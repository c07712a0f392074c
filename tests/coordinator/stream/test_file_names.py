"""The names of files are compared before a decision and before its publication, in the real table's shell."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import pytest

from sluicegate.coordinator.core.effects import CheckFiles, FilesChecked, InspectTable, Publish, Result
from sluicegate.coordinator.observe.messages import format_problem
from sluicegate.coordinator.settings.model import StreamSettings
from sluicegate.coordinator.stream.table import StreamTable
from sluicegate.events.envelope import Envelope, EventType
from sluicegate.events.files import (
    DIGEST_LENGTH,
    attempt_digest,
    attempt_label,
    attempt_of,
    names_problem,
    stated_attempt,
    stated_incarnation,
)
from sluicegate.events.models import FileInfo, FilesWritten
from sluicegate.events.problems import CauseCode, Code, Problem
from sluicegate.kafka.bodies import WrittenEvent
from sluicegate.lakes.port import Published
from tests.doubles.memory_lake import ADAPTER
from tests.lakes.outcomes import is_refused

STREAM = "names"
AT = Envelope("e", EventType.FILES_WRITTEN, STREAM, "r1", "q.0", 3, "w0", "a1", 1)
ALLOWED = ("memory://",)
GOLDEN = "720af6367e9ea5b9172fe10e2e0196ed"


def label_of(at: Envelope) -> str:
    return attempt_label(*attempt_of(at))


OWN = f"m=1/data-{label_of(AT)}-0.parquet"


def body_of(*paths: str) -> FilesWritten:
    """Return a body, also one that no reader accepts."""
    files = tuple(FileInfo.model_construct(path=path, size=1, rows=1) for path in paths)
    return FilesWritten(
        format="memory", format_version=1, location=f"memory://{STREAM}", schema_id=0, files=files
    )


def test_the_digest_is_golden() -> None:
    """Writers of other languages compute it too: it never changes."""
    assert attempt_digest(*attempt_of(AT)) == attempt_digest("names", "r1", "q.0", 3, "w0", "a1") == GOLDEN
    assert len(GOLDEN) == DIGEST_LENGTH
    assert label_of(AT) == f"{GOLDEN}-q0-3"


@pytest.mark.parametrize(
    ("name", "stated"),
    [
        (f"data-{GOLDEN}-q0-3-0.parquet", ("q0", 3)),
        (f"data-{GOLDEN}-0123456789abcdef-0-x-y.parquet", ("0123456789abcdef", 0)),
        (f"data-{GOLDEN}-0.parquet", None),
        (f"data-{GOLDEN}-0123456789abcdef0-3-0.parquet", None),
        (f"{GOLDEN}-q0-3-0.parquet", None),
        ("part-00000-7c2e7a1b-c000.snappy.parquet", None),
    ],
)
def test_a_name_states_its_attempt_in_clear(name: str, stated: tuple[str, int] | None) -> None:
    assert stated_attempt(name) == stated


def test_a_name_has_the_first_letters_and_digits_of_an_incarnation() -> None:
    assert stated_incarnation("job-0f1e2d3c4b5a69788796a5b4c3d2e1f0") == "job0f1e2d3c4b5a6"
    assert stated_incarnation("q.0") == "q0"


@pytest.mark.parametrize(
    "other",
    [
        AT._replace(stream="other"),
        AT._replace(region="r2"),
        AT._replace(incarnation="q.1"),
        AT._replace(checkpoint=4),
        AT._replace(writer="w1"),
        AT._replace(attempt="a2"),
        AT._replace(region="r", incarnation="1q.0"),
        AT._replace(writer="w", attempt="0a1"),
        AT._replace(writer="w", attempt="w0/a1"),
    ],
)
def test_an_event_of_another_attempt_is_found_out(other: Envelope) -> None:
    assert names_problem(attempt_of(AT), body_of(OWN)) is None
    problem = names_problem(attempt_of(other), body_of(OWN))
    assert problem is not None
    assert problem.code is Code.FILE_NAME_DIFFERS
    assert problem.names[:2] == (OWN, label_of(other))


@pytest.mark.parametrize(
    "path",
    [
        "data-0.parquet",
        "part-00000",
        label_of(AT),
        f"{label_of(AT)}-0.parquet",
        f"data-{label_of(AT)}",
        f"data-{label_of(AT)}0-0.parquet",
        f"data-0{label_of(AT)}-0.parquet",
        f"data-{label_of(AT).upper()}-0.parquet",
        f"data-{label_of(AT._replace(checkpoint=2))}-{label_of(AT)}-0.parquet",
        f"data-{label_of(AT)}-/0.parquet",
        f"data-{GOLDEN}-0.parquet",
        f"data-{GOLDEN}-q1-3-0.parquet",
        f"data-{GOLDEN}-q0-4-0.parquet",
    ],
)
def test_a_digest_elsewhere_in_the_path_is_none(path: str) -> None:
    """Else one name could carry the digests of two attempts."""
    assert names_problem(attempt_of(AT), body_of(OWN, path)) is not None


async def judged(
    events: Mapping[int, WrittenEvent], checked: bool, allowed: tuple[str, ...] = ALLOWED
) -> tuple[FilesChecked, Result, StreamTable]:
    """Check the events, as of the region r1, and publish them; return both results, and the table."""
    settings = StreamSettings(format="memory", table=f"memory://{STREAM}", commit_user="u")
    created, offsets = ADAPTER.create(STREAM), tuple(events)
    try:
        with ThreadPoolExecutor(1) as threads:
            table = StreamTable(settings, threads)
            await table.inspect(InspectTable())
            found = await table.check(CheckFiles({"r1": offsets}, allowed, created.identity, checked), events)
            made = await table.publish(Publish(1, "d", None, None, offsets, allowed, checked), events)
            table.close()
    finally:
        ADAPTER.drop(STREAM)
    assert isinstance(found, FilesChecked)
    return found, made, table


def written(files: FilesWritten, at: Envelope = AT) -> WrittenEvent:
    return WrittenEvent(at, files.model_dump_json().encode())


@pytest.mark.parametrize("checked", [True, False])
async def test_check_and_publication_compare_the_names(checked: bool) -> None:
    found, made, _ = await judged({0: written(body_of("data-0"))}, checked)
    if not checked:
        assert found.problems == {}
        assert isinstance(made, Published)
        return
    problem = found.problems["r1"]
    assert problem.code is Code.FILE_NAME_DIFFERS
    assert problem.names[0] == "data-0"
    assert is_refused(made)
    assert made.cause is not None
    assert made.cause.code is CauseCode.EVENT_UNUSABLE
    refused = Problem(code=Code.COMMIT_REFUSED, number=1, cause=made.cause, detail=made.reason)
    sentence = format_problem(refused, STREAM)
    assert format_problem(problem, STREAM) in sentence
    assert f"sluicegate region reset --stream {STREAM} --region r1" in sentence


async def test_a_refused_publication_names_the_region_whose_files_are_refused() -> None:
    """Both regions are in the decision; the operator's order names the one that reads again."""
    other = body_of("data-1").model_copy(update={"format_version": 2})
    events = {0: written(body_of("data-0")), 1: written(other, AT._replace(id="e2", region="r2"))}
    _, made, _ = await judged(events, False)
    assert is_refused(made)
    assert made.region == "r2"
    refused = Problem(code=Code.COMMIT_REFUSED, number=1, names=(made.region,), detail=made.reason)
    advice = f"revert --stream {STREAM} --decision 1 --region r2`. The region r2 reads"
    assert advice in format_problem(refused, STREAM)


@pytest.mark.parametrize(
    ("files", "code"),
    [
        (body_of(OWN, "../up"), Code.BODY_UNREADABLE),
        (body_of(OWN).model_copy(update={"location": "memory://elsewhere"}), Code.LOCATION_NOT_ALLOWED),
        (body_of(OWN).model_copy(update={"format": "other"}), Code.OTHER_FORMAT),
        (body_of(OWN, OWN), Code.BODY_UNREADABLE),
        (body_of(OWN, f"data-{label_of(AT)}-1.parquet"), Code.BODY_UNREADABLE),
        (body_of(f"%2e%2e/{OWN}"), Code.PATH_ESCAPES),
    ],
)
async def test_files_that_cannot_be_committed_exclude_their_region(files: FilesWritten, code: Code) -> None:
    """The attributes of the event announce one file."""
    found, made, table = await judged({7: written(files)}, True, (f"memory://{STREAM}",))
    assert found.problems["r1"].code is code
    assert is_refused(made)
    assert (7 in table.broken) is (code is Code.BODY_UNREADABLE)
