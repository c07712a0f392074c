"""The difference between two settings."""

from typing import Any

from pydantic import SecretStr

from sluicegate.coordinator.settings.model import Settings
from sluicegate.coordinator.settings.reload import Reload, plan_reload


def settings(*streams: str, **more: Any) -> Settings:
    named = {name: {"table": f"/data/{name}", **more.pop(name, {})} for name in streams}
    kafka = {"bootstrap_servers": "localhost:9092", **more.pop("kafka", {})}
    return Settings.model_validate({"kafka": kafka, "streams": named, **more})


def test_streams_are_taken_over_and_named() -> None:
    wanted = settings("b", "c", "d", c={"alignment_timeout": "1s"})
    plan = plan_reload(settings("a", "b", "c"), wanted)
    assert (plan.added, plan.removed, plan.changed) == (("d",), ("a",), ("c",))
    assert plan.restart == ()
    assert plan.settings == wanted


def test_equal_settings_change_nothing() -> None:
    plan = plan_reload(settings("a"), settings("a"))
    assert plan == Reload(settings("a"), (), (), (), ())


def test_an_option_of_the_table_is_a_change() -> None:
    held, wanted = settings("a", a={"options": {"k": "1"}}), settings("a", a={"options": {"k": "2"}})
    plan = plan_reload(held, wanted)
    assert plan.changed == ("a",)
    assert plan.settings.streams["a"].options == {"k": SecretStr("2")}


def test_everything_else_stays_and_is_named_by_its_key() -> None:
    held = settings("a")
    wanted = settings(
        "a",
        "b",
        kafka={"group_id": "other", "security": {"protocol": "SSL"}},
        http={"port": 9},
        redis={"url": "redis://localhost"},
        commit_threads=3,
    )
    plan = plan_reload(held, wanted)
    assert plan.restart == (
        "kafka.security.protocol",
        "kafka.group_id",
        "redis",
        "http.port",
        "commit_threads",
    )
    assert plan.settings == held.model_copy(update={"streams": wanted.streams})


def test_token_files_are_taken_over() -> None:
    held = settings("a", http={"port": 1, "token_files": ["/run/old"]})
    wanted = settings("a", http={"port": 1, "token_files": ["/run/old", "/run/new"]})
    plan = plan_reload(held, wanted)
    assert plan.restart == ()
    assert plan.settings == wanted
