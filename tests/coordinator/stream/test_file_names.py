"""The names of files are compared before a decision and before its publication, in the real table's shell."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from sluicegate.coordinator.core.effects import CheckFiles, FilesChecked, InspectTable, PartsOf, Publish
from sluicegate.coordinator.settings.model import StreamSettings
from sluicegate.coordinator.stream.table import StreamTable
from sluicegate.events.envelope import Envelope, EventType
from sluicegate.events.models import FileInfo, FilesWritten
from sluicegate.events.naming import DIGEST_LENGTH, attempt_digest, attempt_of, names_problem
from sluicegate.kafka.bodies import WrittenEvent
from sluicegate.lakes.memory import ADAPTER
from sluicegate.lakes.port import Published, Refused

STREAM = "names"
AT = Envelope("e", EventType.FILES_WRITTEN, STREAM, "r1", "q.0", 3, "w0", 1, "a1")
ALLOWED = ("memory://",)
GOLDEN = "b79c5bb2f7203409faa25126b7721e6a"


def digest_of(at: Envelope) -> str:
    return attempt_digest(*attempt_of(at))


OWN = f"m=1/data-{digest_of(AT)}-0.parquet"


def body_of(*paths: str) -> FilesWritten:
    files = tuple(FileInfo(path=path, size=1, rows=1) for path in paths)
    return FilesWritten(
        format="memory", format_version=1, location=f"memory://{STREAM}", schema_id=0, files=files
    )


def test_the_digest_is_golden() -> None:
    """Writers of other languages compute it too: it never changes."""
    assert digest_of(AT) == attempt_digest("names", "r1", "q.0", 3, "w0", "a1") == GOLDEN
    assert len(GOLDEN) == DIGEST_LENGTH


@pytest.mark.parametrize(
    "other",
    [
        AT._replace(stream="other"),
        AT._replace(region="r2"),
        AT._replace(lineage="q.1"),
        AT._replace(checkpoint=4),
        AT._replace(writer="w1"),
        AT._replace(attempt="a2"),
        AT._replace(region="r", lineage="1q.0"),
        AT._replace(writer="w", attempt="0a1"),
        AT._replace(writer='w0","a', attempt="1"),
    ],
)
def test_an_event_of_another_attempt_is_found_out(other: Envelope) -> None:
    assert names_problem(attempt_of(AT), body_of(OWN)) is None
    problem = names_problem(attempt_of(other), body_of(OWN))
    assert problem is not None
    assert OWN in problem
    assert digest_of(other) in problem


@pytest.mark.parametrize(
    "path",
    [
        "data-0.parquet",
        "part-00000",
        digest_of(AT),
        f"{digest_of(AT)}-0.parquet",
        f"data-{digest_of(AT)}",
        f"data-{digest_of(AT)}0-0.parquet",
        f"data-0{digest_of(AT)}-0.parquet",
        f"data-{digest_of(AT).upper()}-0.parquet",
        f"data-{digest_of(AT._replace(checkpoint=2))}-{digest_of(AT)}-0.parquet",
        f"data-{digest_of(AT)}-/0.parquet",
    ],
)
def test_a_digest_elsewhere_in_the_path_is_none(path: str) -> None:
    """Else one name could carry the digests of two attempts."""
    assert names_problem(attempt_of(AT), body_of(OWN, path)) is not None


@pytest.mark.parametrize("checked", [True, False])
async def test_check_and_publication_compare_the_names(checked: bool) -> None:
    settings = StreamSettings(format="memory", table=f"memory://{STREAM}", commit_user="u")
    made_anew = ADAPTER.create(STREAM)
    events = {0: WrittenEvent(attempt_of(AT), body_of("data-0").model_dump_json().encode())}
    try:
        with ThreadPoolExecutor(1) as threads:
            table = StreamTable(settings, threads, STREAM)
            await table.inspect(InspectTable())
            wanted = CheckFiles((PartsOf("r1", (0,)),), ALLOWED, made_anew.identity, checked)
            found = await table.check(wanted, events)
            assert isinstance(found, FilesChecked)
            made = await table.publish(Publish(1, "d", None, None, (0,), ALLOWED, checked), events)
            table.close()
    finally:
        ADAPTER.drop(STREAM)
    if not checked:
        assert found.problems == {}
        assert isinstance(made, Published)
        return
    assert "data-0 does not carry" in found.problems["r1"]
    assert f"sluicegate rewind --stream {STREAM} --region r1" in found.problems["r1"]
    assert isinstance(made, Refused)
    assert "data-0 does not carry" in made.reason
