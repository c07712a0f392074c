"""Keys that a catalog hands out: renewed in time, asked for once, and dropped when the store refuses them."""

import logging
import threading
import time
from collections.abc import Mapping
from typing import Any

import pytest

from sluicegate.lakes.iceberg import vended
from sluicegate.lakes.iceberg.adapter import IcebergAdapter
from sluicegate.lakes.iceberg.vended import OPTION, PAUSE, RENEWED_AT, UNSTATED, VENDED, VendedKeys
from sluicegate.lakes.port import LakeUnavailable, TableRefused
from sluicegate.lakes.storage import Storage, Uncertain, source_options
from sluicegate.lakes.storages import open_storage
from sluicegate.writer_hooks.options import SinkOptions
from tests.doubles.s3 import BUCKET, Effect, S3Double

FOLDER = f"s3://{BUCKET}/warehouse/numbers"
NAME = "metadata/a"
OPTIONS = {"format": "iceberg", "type": "rest", "uri": "http://catalog", "identifier": "db.numbers"}


class CatalogDouble:
    """Answers with keys as a catalog does; a number of each tells them apart."""

    def __init__(self, life: float | None = 3600.0, prefix: str | None = None) -> None:
        self.life = life
        self.prefix = prefix
        self.asked = 0
        self.away = False
        self.more: dict[str, str] = {}

    def __call__(self) -> Mapping[str, Any]:
        """Return the next answer."""
        if self.away:
            raise LakeUnavailable("the catalog gives no answer")
        self.asked += 1
        config = {
            "s3.access-key-id": f"access-{self.asked}",
            "s3.secret-access-key": f"secret-{self.asked}",
            "s3.session-token": f"session-{self.asked}",
            **self.more,
        }
        if self.life is not None:
            config["s3.session-token-expires-at-ms"] = str(int((time.time() + self.life) * 1000))
        if self.prefix is None:
            return {"config": config}
        return {"config": {}, "storage-credentials": [{"prefix": self.prefix, "config": config}]}


class Clock:
    """The monotonic clock, as a test moves it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        """Return the time in seconds."""
        return self.now

    def time(self) -> float:
        """Return the time in seconds since the Unix epoch."""
        return time.time()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(vended, "time", found)
    return found


@pytest.fixture
def catalog() -> CatalogDouble:
    return CatalogDouble()


@pytest.fixture
def keys(catalog: CatalogDouble) -> VendedKeys:
    return VendedKeys(catalog, "db.numbers", OPTIONS)


@pytest.fixture
def storage(s3_double: S3Double, keys: VendedKeys, monkeypatch: pytest.MonkeyPatch) -> Storage:
    """Open a folder whose store knows the first keys of the catalog, and none of the environment."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "access-of-the-environment")
    s3_double.access_keys = {"access-1"}
    return open_storage(FOLDER, keys)


def test_the_keys_of_the_catalog_count_and_are_asked_for_once(
    catalog: CatalogDouble, storage: Storage
) -> None:
    assert catalog.asked == 0, "opening needs none"
    assert storage.put_if_absent(NAME, b"ours")
    assert storage.read(NAME) == b"ours"
    storage.write("data", {str(number): b"1" for number in range(8)})
    assert catalog.asked == 1
    assert source_options(storage) == OPTIONS


@pytest.mark.parametrize("life", [3600.0, None])
def test_keys_are_renewed_before_they_end(
    clock: Clock, keys: VendedKeys, catalog: CatalogDouble, life: float | None
) -> None:
    catalog.life = life
    lasts = UNSTATED if life is None else life
    first = keys.keys(FOLDER)
    clock.now += RENEWED_AT * lasts - 1
    assert keys.keys(FOLDER) == first
    clock.now += 2
    assert keys.keys(FOLDER).access == "access-2"
    assert catalog.asked == 2


def test_a_catalog_that_is_away_is_needed_only_when_the_keys_end(
    clock: Clock, keys: VendedKeys, catalog: CatalogDouble, caplog: pytest.LogCaptureFixture
) -> None:
    first = keys.keys(FOLDER)
    catalog.away = True
    clock.now += RENEWED_AT * 3600.0 + 1
    with caplog.at_level(logging.WARNING):
        assert [keys.keys(FOLDER) for _ in range(3)] == [first] * 3
    assert len(caplog.messages) == 1, "one question in a pause"
    assert "secret" not in caplog.text
    clock.now += 3600.0
    with pytest.raises(LakeUnavailable, match="gives no answer"):
        keys.keys(FOLDER)
    catalog.away = False
    assert keys.keys(FOLDER).access == "access-2"


def test_threads_that_need_keys_ask_once(keys: VendedKeys, catalog: CatalogDouble) -> None:
    start = threading.Barrier(8)
    found: list[str] = []

    def ask() -> None:
        start.wait()
        found.append(keys.keys(FOLDER).access)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert found == ["access-1"] * 8
    assert catalog.asked == 1


def test_keys_that_the_store_refuses_are_dropped(
    clock: Clock, s3_double: S3Double, storage: Storage, catalog: CatalogDouble
) -> None:
    assert storage.put_if_absent(NAME, b"ours")
    s3_double.access_keys = {"access-2"}
    clock.now += PAUSE
    assert storage.read(NAME) == b"ours"
    assert catalog.asked == 2
    s3_double.access_keys = {"access-3"}
    clock.now += PAUSE
    assert storage.put_if_absent("metadata/b", b"ours")
    assert not storage.put_if_absent(NAME, b"another")
    assert catalog.asked == 3


def test_new_keys_that_are_refused_are_not_asked_for_again_at_once(
    clock: Clock, s3_double: S3Double, storage: Storage, catalog: CatalogDouble
) -> None:
    s3_double.access_keys.clear()
    for _ in range(3):
        with pytest.raises(LakeUnavailable, match="the keys are not valid, or not any more"):
            storage.read(NAME)
    assert catalog.asked == 1
    clock.now += PAUSE
    with pytest.raises(LakeUnavailable):
        storage.read(NAME)
    assert catalog.asked == 2


def test_a_thread_with_old_keys_does_not_drop_new_ones(
    clock: Clock, keys: VendedKeys, catalog: CatalogDouble
) -> None:
    old = keys.keys(FOLDER)
    clock.now += PAUSE
    assert keys.drop(old)
    new = keys.keys(FOLDER)
    clock.now += PAUSE
    assert keys.drop(old), "others are there already"
    assert keys.keys(FOLDER) == new
    assert catalog.asked == 2


def test_a_put_is_uncertain_if_the_keys_end_after_a_lost_answer(
    clock: Clock, s3_double: S3Double, storage: Storage, catalog: CatalogDouble
) -> None:
    """That the repetition was refused says nothing of the first request."""
    storage.read(NAME)
    storage.put_if_absent("metadata/b", b"1")
    lost = s3_double.strike(Effect.LOST_BEFORE, NAME, times=1)

    def end() -> None:
        s3_double.access_keys.clear()
        catalog.away = True
        clock.now += PAUSE

    lost.meanwhile = end
    with pytest.raises(Uncertain):
        storage.put_if_absent(NAME, b"ours")


@pytest.mark.parametrize(
    ("prefix", "fits"),
    [
        (f"s3://{BUCKET}/warehouse/numbers", True),
        (f"s3a://{BUCKET}/warehouse/", True),
        ("s3", True),
        (f"s3://{BUCKET}/other", False),
    ],
)
def test_keys_are_for_a_prefix(prefix: str, fits: bool) -> None:
    keys = VendedKeys(CatalogDouble(prefix=prefix), "db.numbers", OPTIONS)
    if fits:
        assert keys.keys(FOLDER).access == "access-1"
        return
    with pytest.raises(TableRefused, match=f"hands out no keys for {FOLDER}"):
        keys.keys(FOLDER)


def test_keys_of_a_folder_in_a_bucket_open_the_bucket(catalog: CatalogDouble, keys: VendedKeys) -> None:
    """Files of metadata are named from the bucket on."""
    catalog.prefix = f"s3://{BUCKET}/warehouse/numbers"
    assert keys.keys(f"s3://{BUCKET}").access == "access-1"


def test_the_region_and_the_address_come_with_the_keys(
    s3_double: S3Double, storage: Storage, catalog: CatalogDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    monkeypatch.setenv("AWS_REGION", "nowhere-1")
    catalog.more = {"s3.endpoint": s3_double.endpoint, "client.region": s3_double.region}
    assert storage.put_if_absent(NAME, b"ours")
    assert s3_double.objects[f"warehouse/numbers/{NAME}"] == b"ours"


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ({"config": {"s3.remote-signing-enabled": "true"}}, "signs each request"),
        ({"config": {}}, "hands out no keys for the storage of db.numbers"),
        ({}, "hands out no keys for the storage of db.numbers"),
    ],
)
def test_a_catalog_without_keys_is_refused_by_name(answer: dict[str, Any], says: str) -> None:
    with pytest.raises(TableRefused, match=says):
        VendedKeys(lambda: answer, "db.numbers", OPTIONS).keys(FOLDER)


@pytest.mark.parametrize(
    "answer",
    [{"storage-credentials": [{"config": {"s3.secret-access-key": "known"}}]}, {"config": ["known"]}],
)
def test_an_answer_that_cannot_be_read_is_not_shown(answer: dict[str, Any]) -> None:
    with pytest.raises(LakeUnavailable, match="cannot be read") as raised:
        VendedKeys(lambda: answer, "db.numbers", OPTIONS).keys(FOLDER)
    assert raised.value.__context__ is None


def test_secrets_are_in_no_text_of_keys(keys: VendedKeys) -> None:
    shown = repr(keys.keys(FOLDER))
    assert "access-1" in shown
    assert "secret-1" not in shown
    assert "session-1" not in shown


@pytest.mark.parametrize("location", ["gs://bucket/t", "abfss://cc@account.dfs.core.windows.net/t"])
def test_other_stores_are_refused_by_name(location: str, keys: VendedKeys) -> None:
    with pytest.raises(TableRefused, match="works for S3 alone"):
        open_storage(location, keys)


@pytest.mark.parametrize(
    "options",
    [
        {"type": "rest", OPTION: "remote-signing"},
        {"type": "rest", OPTION: f"{VENDED},remote-signing"},
        {"type": "rest", OPTION: VENDED, OPTION.lower(): VENDED},
        {"type": "sql", OPTION: VENDED},
    ],
)
def test_an_option_that_asks_in_another_way_is_refused(options: dict[str, str]) -> None:
    adapter = IcebergAdapter({"uri": "sqlite:///x", "identifier": "db.numbers"})
    with pytest.raises(TableRefused, match=f"is written {OPTION}"):
        adapter.parse_table(FOLDER, options)


def test_sinks_ask_for_keys_though_their_options_are_in_lower_case() -> None:
    given = {
        "stream": "flights",
        "region": "r1",
        "format": "iceberg",
        "table": FOLDER,
        "kafka.bootstrap.servers": "localhost:9092",
        "table.type": "rest",
        "table.uri": "http://catalog",
        "table.identifier": "db.numbers",
        f"table.{OPTION}": VENDED,
    }
    table = SinkOptions.parse(given, located=False).table_ref()
    assert IcebergAdapter().key_source({**table.options, "format": "iceberg"}) is not None
