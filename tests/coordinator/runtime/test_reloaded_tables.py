"""A reload is refused for a table that cannot be used, and only for one that is new or changed."""

from pathlib import Path
from typing import Any

import pytest

from sluicegate.coordinator.service.startup import table_problems
from sluicegate.coordinator.settings.model import Settings, validate


def settings(tmp_path: Path, **streams: dict[str, Any]) -> Settings:
    made = {name: {"table": str(tmp_path / name), **more} for name, more in streams.items()}
    return validate({"kafka": {"bootstrap_servers": "127.0.0.1:9092"}, "streams": made}, {})


@pytest.mark.parametrize(
    ("table_format", "options", "reason"),
    [
        ("paimon", {"branch": "main"}, "Paimon tables have no options, and branch is given"),
        ("delta", {"checkpoint": "off"}, "Delta tables have no option checkpoint"),
        ("iceberg", {"uri": "sqlite:///c.db", "branhc": "main"}, "Did you mean branch?"),
        ("iceberg", {"uri": "sqlite:///c.db", "identifier": "flights"}, "must be NAMESPACE.TABLE"),
    ],
)
def test_a_wrong_option_is_refused(
    tmp_path: Path, table_format: str, options: dict[str, str], reason: str
) -> None:
    held = settings(tmp_path, flights={"format": table_format})
    for name in ("flights", "added"):
        changed = settings(
            tmp_path,
            **{"flights": {"format": table_format}} | {name: {"format": table_format, "options": options}},
        )
        (problem,) = table_problems(held, changed)
        assert problem.startswith(f"streams.{name}: ")
        assert reason in problem


def test_a_stream_that_runs_does_not_change_to_a_table_that_is_not_there(tmp_path: Path) -> None:
    held = settings(tmp_path, flights={})
    changed = settings(tmp_path, flights={"table": str(tmp_path / "nothing")})
    (problem,) = table_problems(held, changed)
    assert problem.startswith("streams.flights: ")
    # A new stream may wait for its table.
    assert table_problems(held, settings(tmp_path, flights={}, added={})) == []


def test_what_was_wrong_before_keeps_no_other_change_away(tmp_path: Path) -> None:
    wrong = {"options": {"branhc": "main"}}
    held = settings(tmp_path, flights=wrong)
    assert table_problems(held, settings(tmp_path, flights=wrong | {"partial": "allow"}, added={})) == []
