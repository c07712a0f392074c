"""Lineage: the events of a run, their ids, and what each answer of a server means."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sluicegate.events.notifications import NotificationType
from sluicegate.listeners.openlineage.events import dataset_name
from sluicegate.listeners.openlineage.listener import TYPE, OpenLineage, OpenLineageOptions
from sluicegate.listeners.port import Done, Failed, ListenerRefused
from tests.listeners import hosting
from tests.listeners.hosting import outcome, send, stream
from tests.listeners.reporting import Server

pytestmark = pytest.mark.seam


@asynccontextmanager
async def opened(**settings: Any) -> AsyncIterator[OpenLineage]:
    async with hosting.opened(TYPE, OpenLineageOptions.model_validate(settings)) as found:
        yield found


async def test_a_commit_is_a_run_with_a_start_and_an_end(server: Server) -> None:
    async with opened(url=server.base) as listener:
        assert await send(listener, outcome()) == [Done(), Done()]
    body: Any = outcome().body
    start, end = (event for event, _ in server.got)
    assert (start["eventType"], end["eventType"]) == ("START", "COMPLETE")
    assert start["eventTime"] <= end["eventTime"]
    assert start["run"] == end["run"]
    assert (end["job"]["namespace"], end["job"]["name"]) == ("sluicegate", "flights")
    output, further = end["outputs"]
    assert further["name"] == "/i"
    assert (output["namespace"], output["name"]) == ("file", "/lake/db.db/flights")
    assert output["facets"]["version"]["datasetVersion"] == str(body.snapshot.id)
    statistics = output["outputFacets"]["outputStatistics"]
    assert statistics["rowCount"] == body.summary.rows
    assert statistics["size"] == body.summary.bytes
    assert statistics["fileCount"] == body.summary.files
    commit = end["run"]["facets"]["sluicegate_commit"]
    assert (commit["decision"], commit["full"]) == (body.decision, not body.fallbacks)


async def test_a_reverted_decision_is_an_aborted_run_without_a_version(server: Server) -> None:
    async with opened(url=server.base) as listener:
        assert await send(listener, outcome(NotificationType.REVERTED)) == [Done(), Done()]
        assert await send(listener, outcome(NotificationType.SAVEPOINT_TAKEN)) == []
    (start, _), (end, _) = server.got
    assert (start["eventType"], end["eventType"]) == ("START", "ABORT")
    assert "version" not in end["outputs"][0].get("facets", {})


async def test_each_decision_has_one_run_in_every_process(tmp_path: Path) -> None:
    ids = set()
    for namespace in ("sluicegate", "sluicegate", "other"):
        async with opened(url="http://127.0.0.1:9", namespace=namespace) as listener:
            (first, second) = listener.apply(outcome(), listener.initial()).actions
            assert first.key != second.key
            ids.add(json.loads(first.body)["run"]["runId"])  # type: ignore[attr-defined]
    assert len(ids) == 2


@pytest.mark.parametrize("status", [500, 422, 302])
async def test_an_answer_other_than_success_is_a_failure_after_one_request(
    server: Server, status: int
) -> None:
    server.status = status
    async with opened(url=server.base) as listener:
        action = listener.apply(outcome(), listener.initial()).actions[0]
        result = await listener.run(action)
    assert isinstance(result, Failed)
    assert f"answered {status}" in result.reason
    assert len(server.got) == 1


async def test_a_server_that_is_away_is_a_failure() -> None:
    async with opened(url="http://127.0.0.1:9") as listener:
        result = await listener.run(listener.apply(outcome(), listener.initial()).actions[0])
    assert isinstance(result, Failed)
    assert "Start the server, or correct the URL" in result.reason


@pytest.mark.parametrize(
    ("location", "name"),
    [
        ("file:///lake/db.db/a%20b/", ("file", "/lake/db.db/a b")),
        ("s3://bucket/lake/t", ("s3://bucket", "lake/t")),
        ("s3a://bucket/lake/t", ("s3://bucket", "lake/t")),
        ("gs://bucket/lake/t/", ("gs://bucket", "lake/t")),
        ("abfss://box@account.dfs.core.windows.net/t", ("abfss://box@account.dfs.core.windows.net", "t")),
    ],
)
def test_a_table_has_the_name_that_openlineage_gives_it(location: str, name: tuple[str, str]) -> None:
    assert dataset_name(location) == name


async def test_the_key_of_a_file_is_sent_and_a_missing_one_is_refused(server: Server, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("secret\n")
    async with opened(url=server.base, api_key_file=key) as listener:
        assert await send(listener, outcome()) == [Done(), Done()]
        key.unlink()
        result = await listener.run(listener.apply(outcome(), listener.initial()).actions[0])
    assert [headers["Authorization"] for _, headers in server.got] == ["Bearer secret"] * 2
    assert isinstance(result, Failed)
    with pytest.raises(ListenerRefused, match=r"api_key_file .* cannot be read"):
        TYPE.check(OpenLineageOptions(url="http://127.0.0.1:9", api_key_file=key), stream())
