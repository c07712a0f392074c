"""Actions: the report to a real HTTP server, functions of users, the file in a bucket, and cleaners."""

import json
import os

import pytest

from sluicegate.lakes.storages import open_storage
from sluicegate.listeners.mark_done.listener import TYPE, put_success_file
from sluicegate.listeners.mark_done.policy import Mark, Period
from sluicegate.listeners.port import Done, Failed, ListenerRefused, Unknown
from tests.doubles.s3 import S3Double
from tests.listeners.mark_done import functions
from tests.listeners.mark_done.conftest import Monthly, by_month
from tests.listeners.mark_done.driving import Host, NotDone, committed
from tests.listeners.mark_done.policies import at
from tests.listeners.reporting import Server

pytestmark = pytest.mark.slow

JANUARY = {"origin": "2013-01"}
MARK = Mark(
    "origin=2013-01",
    JANUARY,
    Period(at("2013-01-01"), at("2013-02-01")),
    7,
    70,
    5,
    100,
    "watermark",
    False,
    1,
)


JANUARY_IS_DONE = committed(1, JANUARY, watermark=at("2013-02-02"), time=100)


async def test_a_report_has_the_fields_of_paimon_and_a_key(monthly: Monthly, server: Server) -> None:
    options = by_month(
        "http-report", http_url=server.url, http_params="team=flights", http_headers={"X-Key": "k"}
    )
    async with Host(options, monthly.stream) as host:
        await host.see(JANUARY_IS_DONE)
    ((body, headers),) = server.got
    assert {key: body[key] for key in ("partition", "table", "path", "params")} == {
        "partition": "origin=2013-01",
        "table": monthly.stream.table.name,
        "path": monthly.stream.table.location,
        "params": "team=flights",
    }
    assert (body["decision"], body["late"], body["end"]) == (1, False, at("2013-02-01"))
    assert (headers["X-Key"], len(headers["Idempotency-Key"])) == ("k", 32)
    assert "'k'" not in repr(options)


@pytest.mark.parametrize(
    ("status", "text", "expected"),
    [
        (204, "", "Done"),
        (200, "thanks", "Done"),
        (200, "[1]", "Done"),
        (200, '{"result": "success"}', "Done"),
        (200, '{"result": "FAILED"}', "the server answered with the result 'FAILED' instead of SUCCESS"),
        (500, "oops", "the server answered 500: oops. Correct http_url, http_headers or the server"),
        (302, "", "the server answered 302: . Correct http_url, http_headers or the server"),
    ],
)
async def test_the_answer_of_the_server(
    monthly: Monthly, server: Server, status: int, text: str, expected: str
) -> None:
    server.status, server.text = status, text
    async with Host(by_month("http-report", http_url=server.url), monthly.stream) as host:
        if expected == "Done":
            await host.see(JANUARY_IS_DONE)
            assert host.results[-1] == Done()
            return
        with pytest.raises(NotDone) as caught:
            await host.see(JANUARY_IS_DONE)
        assert caught.value.result == Failed(expected)
        server.status, server.text = 200, ""
        await host.see(JANUARY_IS_DONE)
    keys = [headers["Idempotency-Key"] for _, headers in server.got]
    assert len(keys) == 2
    assert len({*keys}) == 1


async def test_a_server_that_hangs_up_may_have_the_report(monthly: Monthly, server: Server) -> None:
    server.hangs_up = True
    async with Host(by_month("http-report", http_url=server.url), monthly.stream) as host:
        with pytest.raises(NotDone) as caught:
            await host.see(JANUARY_IS_DONE)
    assert isinstance(caught.value.result, Unknown)
    assert "with the same id" in caught.value.result.reason
    assert "secret" not in caught.value.result.reason


@pytest.mark.parametrize("name", ["plain", "waiting"])
async def test_a_function_of_the_user_gets_each_mark(monthly: Monthly, name: str) -> None:
    functions.CALLS.clear()
    async with Host(by_month("custom", custom=f"{functions.__name__}:{name}"), monthly.stream) as host:
        await host.see(JANUARY_IS_DONE)
    (mark,) = functions.CALLS
    assert (mark.partition, mark.values, mark.stream, mark.decision) == (
        "origin=2013-01",
        JANUARY,
        "flights",
        1,
    )
    assert mark.key == "origin=2013-01@1"


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        (
            "no_such_package.x:y",
            "ModuleNotFoundError.* Install its package beside the service, or correct custom",
        ),
        ("json:no_such_function", "AttributeError"),
        ("json:__name__", "is no function. Name one that takes a mark"),
    ],
)
async def test_a_function_that_is_not_there_is_refused(monthly: Monthly, place: str, reason: str) -> None:
    with pytest.raises(ListenerRefused, match=reason):
        TYPE.check(by_month("custom", custom=place), monthly.stream)


async def test_a_file_that_cannot_be_put_names_its_folder(
    monthly: Monthly, monkeypatch: pytest.MonkeyPatch
) -> None:
    monthly.write("2013-01")

    def fail(*_: object) -> None:
        raise PermissionError("injected")

    monkeypatch.setattr(os, "replace", fail)
    async with Host(by_month("success-file"), monthly.stream) as host:
        with pytest.raises(NotDone) as caught:
            await host.see(JANUARY_IS_DONE)
        monkeypatch.undo()
        assert isinstance(caught.value.result, Failed)
        assert "cannot put _SUCCESS in " in caught.value.result.reason
        assert "See whether" in caught.value.result.reason
        assert monthly.success() == []
        await host.see(JANUARY_IS_DONE)
    assert monthly.success() == ["2013-01"]


async def test_the_file_is_put_into_a_bucket(s3_double: S3Double) -> None:
    storage = open_storage(f"s3://{min(s3_double.buckets)}/lake/flights")
    put_success_file(storage, "origin=2013-01", MARK)
    put_success_file(storage, "origin=2013-01", MARK._replace(decision=9, time=200))
    put_success_file(storage, "origin=2013-01", MARK._replace(decision=8, time=150))
    found = json.loads(storage.read("origin=2013-01/_SUCCESS") or b"")
    assert (found["creationTime"], found["modificationTime"], found["decision"]) == (100, 200, 9)
