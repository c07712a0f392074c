"""The difference between two settings."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from sluicegate.coordinator.service.startup import table_problems
from sluicegate.coordinator.settings.model import Settings, validate
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


def settings_with(tmp_path: Path, **streams: dict[str, Any]) -> Settings:
    made = {name: {"table": str(tmp_path / name), **more} for name, more in streams.items()}
    return validate({"kafka": {"bootstrap_servers": "127.0.0.1:9092"}, "streams": made}, {})


@pytest.mark.parametrize(
    ("table_format", "options", "reason"),
    [
        ("paimon", {"branch": "main"}, "Paimon tables have no options, and branch is given"),
        ("paimon", {"metastore": "rest"}, "tables of Paimon's REST catalog are not supported"),
        ("delta", {"checkpoint": "off"}, "Delta tables have no option checkpoint"),
        ("iceberg", {"uri": "sqlite:///c.db", "branhc": "main"}, "Did you mean branch?"),
        ("iceberg", {"uri": "sqlite:///c.db", "identifier": "flights"}, "must be NAMESPACE.TABLE"),
    ],
)
def test_a_wrong_option_is_refused(
    tmp_path: Path, table_format: str, options: dict[str, str], reason: str
) -> None:
    held = settings_with(tmp_path, flights={"format": table_format})
    for name in ("flights", "added"):
        changed = settings_with(
            tmp_path,
            **{"flights": {"format": table_format}} | {name: {"format": table_format, "options": options}},
        )
        (problem,) = table_problems(held, changed)
        assert problem.startswith(f"streams.{name}: ")
        assert reason in problem


def test_a_stream_that_runs_does_not_change_to_a_table_that_is_not_there(tmp_path: Path) -> None:
    held = settings_with(tmp_path, flights={})
    changed = settings_with(tmp_path, flights={"table": str(tmp_path / "nothing")})
    (problem,) = table_problems(held, changed)
    assert problem.startswith("streams.flights: ")
    # A new stream may wait for its table.
    assert table_problems(held, settings_with(tmp_path, flights={}, added={})) == []


def test_what_was_wrong_before_keeps_no_other_change_away(tmp_path: Path) -> None:
    wrong = {"options": {"branhc": "main"}}
    held = settings_with(tmp_path, flights=wrong)
    assert table_problems(held, settings_with(tmp_path, flights=wrong | {"partial": "allow"}, added={})) == []
