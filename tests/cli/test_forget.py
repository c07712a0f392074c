"""`sluicegate stream forget` deletes the records of a stream that nobody has in the settings any more."""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from sluicegate.cli.kafka import StateKey, read_records, read_state_keys
from sluicegate.cli.local.process import free_port
from sluicegate.coordinator.core.state import LogState
from sluicegate.coordinator.core.state_record import StateRecord
from sluicegate.coordinator.stream.records import read_held
from sluicegate.coordinator.stream.state_records import encode_record
from sluicegate.events.envelope import partition_of
from sluicegate.state_store import StreamView
from sluicegate.state_store.redis_store import RedisStateStore
from tests.cli.deployment import PARTITIONS, Deployment

pytestmark = [pytest.mark.kafka, pytest.mark.seam]

FORGET = ("stream", "forget", "--stream", "trains")
HOME = partition_of("trains", PARTITIONS)


@pytest.fixture
def forgotten(deployment: Deployment) -> Deployment:
    """Give a deployment with records of the stream trains, and of another one whose name begins so."""
    deployment.create_topics()
    record = encode_record(StateRecord(stream="trains", applied=-1, low_water=0, state=LogState()))
    other = encode_record(StateRecord(stream="trains2", applied=-1, low_water=0, state=LogState()))
    deployment.write_state((b"trains", record), (b"trains/5", record), (b"trains2", other))
    return deployment


def keys(deployment: Deployment, stream: str) -> list[StateKey]:
    return asyncio.run(read_state_keys(deployment.settings, stream))


async def records_of_coordinators(deployment: Deployment) -> list[str]:
    """Return the streams with a record, as a coordinator reads them at an assignment."""
    kafka = deployment.settings.kafka
    return list(await read_held(kafka, PARTITIONS, ("trains", "trains2")))


def test_all_records_of_the_stream_are_deleted(forgotten: Deployment) -> None:
    shown = forgotten.run(*FORGET)
    assert shown.exit_code == 1
    assert "would be deleted: trains/5" in shown.stdout
    again = "sluicegate stream forget --stream trains --yes"
    assert again in shown.stdout
    assert keys(forgotten, "trains") == [StateKey(HOME, "trains"), StateKey(HOME, "trains/5")]
    done = forgotten.run(*again.split()[1:])
    assert (done.exit_code, "stream trains is forgotten: 2 records" in done.stdout) == (0, True), done.output
    assert keys(forgotten, "trains") == []
    assert list(asyncio.run(read_records(forgotten.settings))) == ["trains2"]
    assert asyncio.run(records_of_coordinators(forgotten)) == ["trains2"]
    nothing = forgotten.run(*FORGET)
    assert (nothing.exit_code, "there is nothing to forget" in nothing.stderr) == (2, True), nothing.output


async def views(url: str, prefix: str, *written: str) -> list[str]:
    """Write views of streams; return the streams that have one."""
    store = RedisStateStore(url, prefix=prefix)
    try:
        for name in written:
            await store.write(StreamView(stream=name, revision=3, updated_at=1, commit_user="u"))
        return await store.streams()
    finally:
        await store.close()


@pytest.mark.redis
def test_the_view_in_redis_is_deleted_with_the_records(
    forgotten: Deployment, redis_url: str, unique: str
) -> None:
    forgotten.env |= {"SLUICEGATE_REDIS__URL": redis_url, "SLUICEGATE_REDIS__KEY_PREFIX": unique}
    asyncio.run(views(redis_url, unique, "trains", "others"))
    assert "would be deleted: its view in Redis" in forgotten.run(*FORGET).stdout
    away = {"SLUICEGATE_REDIS__URL": f"redis://127.0.0.1:{free_port()}"}
    failed = forgotten.run(*FORGET, "--yes", **away)
    assert (failed.exit_code, "Repeat when it responds" in failed.stderr) == (2, True), failed.output
    done = forgotten.run(*FORGET, "--yes")
    assert (done.exit_code, "its view in Redis is deleted" in done.stdout) == (0, True), done.output
    assert asyncio.run(views(redis_url, unique)) == ["others"]
    # Also if the records were deleted before, by a command without the settings of Redis.
    asyncio.run(views(redis_url, unique, "trains"))
    assert forgotten.run(*FORGET, "--yes").exit_code == 0
    assert asyncio.run(views(redis_url, unique)) == ["others"]


def test_a_stream_in_the_settings_is_not_forgotten(forgotten: Deployment) -> None:
    forgotten.env["SLUICEGATE_STREAMS__TRAINS__TABLE"] = "/data/trains"
    result = forgotten.run(*FORGET, "--yes")
    assert (result.exit_code, "Remove [streams.trains]" in result.stderr) == (2, True), result.output
    assert len(keys(forgotten, "trains")) == 2
    del forgotten.env["SLUICEGATE_STREAMS__TRAINS__TABLE"]
    assert forgotten.run(*FORGET, "--yes").exit_code == 0


@contextmanager
def coordinator(answer: dict[str, Any]) -> Iterator[int]:
    """Serve the status of a coordinator; gives the port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def test_a_stream_that_a_coordinator_serves_is_not_forgotten(forgotten: Deployment) -> None:
    kafka = forgotten.settings.kafka
    names = {"group": kafka.group_id, "topic_prefix": kafka.topic_prefix}
    with coordinator({**names, "streams": {"trains": {}}}) as port:
        forgotten.env["SLUICEGATE_HTTP__PORT"] = str(port)
        result = forgotten.run(*FORGET, "--yes")
        assert (result.exit_code, "send that coordinator SIGHUP" in result.stderr) == (2, True), result.output
        assert len(keys(forgotten, "trains")) == 2
    with coordinator({**names, "streams": {}}) as port:
        forgotten.env["SLUICEGATE_HTTP__PORT"] = str(port)
        assert forgotten.run(*FORGET, "--yes").exit_code == 0
