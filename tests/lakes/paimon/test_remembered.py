"""What was found in a check is used by the publication, of the very same content only."""

from pathlib import Path

import pytest

from sluicegate.events.models import FilesWritten
from sluicegate.lakes import remembered
from sluicegate.lakes.paimon import entries
from sluicegate.lakes.paimon.entries import Examined
from sluicegate.lakes.port import Published, Refused
from sluicegate.lakes.remembered import Remembered, content_digest
from tests.contracts.lakes.harness import Stream
from tests.contracts.lakes.paimon_lake import PaimonLake


@pytest.fixture
def lake(tmp_path: Path) -> PaimonLake:
    return PaimonLake(tmp_path)


def forbid(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(_: object) -> None:
        raise AssertionError("an entry was decoded again")

    monkeypatch.setattr(entries, "_decode", never)


def test_what_was_checked_is_not_examined_again(lake: PaimonLake, monkeypatch: pytest.MonkeyPatch) -> None:
    stream, event = Stream(lake), lake.event([1, 2])
    stream.committer.check([event])
    again = FilesWritten.model_validate_json(event.model_dump_json())
    with monkeypatch.context() as patch:
        forbid(patch)
        assert isinstance(stream.publish(1, stream.head(1), [again]), Published)
    assert lake.ids() == [1, 2]


def test_other_content_of_the_same_files_is_examined(lake: PaimonLake) -> None:
    stream, event = Stream(lake), lake.event([1])
    stream.committer.check([event])
    file = event.files[0]
    other = event.model_copy(update={"files": (file.model_copy(update={"metadata": file.metadata + b"x"}),)})
    outcome = stream.publish(1, stream.head(1), [other])
    assert isinstance(outcome, Refused)
    assert "more than one record" in outcome.reason


def test_every_word_of_an_event_counts(lake: PaimonLake) -> None:
    event = lake.event([1])
    file = event.files[0]
    changes: list[dict[str, object]] = [
        {"path": f"{file.path}x"},
        {"size": file.size + 1},
        {"rows": file.rows + 1},
        {"partition": {"a": "b"}},
        {"metadata": file.metadata[::-1]},
    ]
    others = [event.model_copy(update={"files": (file.model_copy(update=each),)}) for each in changes]
    others += [
        event.model_copy(update={name: "x"}) for name in ("location", "schema_id", "spec_id", "format")
    ]
    others += [
        event.model_copy(update={"format_version": 9}),
        event.model_copy(update={"files": (file, file)}),
    ]
    assert len({content_digest(each) for each in (event, *others)}) == 1 + len(others)
    assert content_digest(event.model_copy()) == content_digest(event)


def test_the_oldest_are_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembered, "MOST_FILES", 5)
    held: Remembered[Examined] = Remembered()
    found = {name: Examined((b"p",) * 2, (0,) * 2, 0) for name in (b"a", b"b", b"c")}
    for name, examined in found.items():
        held.keep(name, examined)
    assert held.take(b"a") is None
    assert held.take(b"b") is found[b"b"]
    held.keep(b"a", found[b"a"])
    assert held.take(b"c") is found[b"c"]
