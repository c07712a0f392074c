"""Settings of the hints: each that makes no sense is refused with a way out."""

from typing import Any

import pytest
from pydantic import ValidationError

from sluicegate.listeners.port import ListenerType
from sluicegate.listeners.small_files.listener import TYPE
from sluicegate.listeners.small_files.options import SmallFilesOptions
from sluicegate.listeners.small_files.policy import Terms


def test_the_defaults() -> None:
    options = SmallFilesOptions.model_validate({})
    assert options.terms == Terms(smaller_than=32 << 20, files=20, quiet=3_600_000, partitions=10_000)
    assert options.actions == ("hint-event",)


@pytest.mark.parametrize(("text", "size"), [("16MiB", 16 << 20), ("512 KiB", 512 << 10), ("1GiB", 1 << 30)])
def test_a_size_is_a_power_of_two(text: str, size: int) -> None:
    assert SmallFilesOptions.model_validate({"smaller_than": text}).terms.smaller_than == size


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"smaller_than": "30MiB"}, "is no power of two with a unit"),
        ({"smaller_than": "32MB"}, "Write 16MiB, 32MiB, 64MiB or 1GiB, for example"),
        ({"smaller_than": "0MiB"}, "is no power of two"),
        ({"smaller_than": "-1MiB"}, "is no power of two"),
        ({"smaller_than": 33554432}, "string"),
        ({"files": 1}, "greater than or equal to 2"),
        ({"quiet_time": "1 month"}, "has no fixed length"),
        ({"quiet_time": "soon"}, "is no length of time"),
        ({"actions": []}, "at least 1 item"),
        ({"actions": ["mark-event"]}, "hint-event"),
        ({"actions": ["hint-event", "hint-event"]}, "actions has one twice"),
        ({"actions": ["http-report"]}, "needs http_url"),
        ({"http_url": "http://x"}, "actions lacks http-report"),
        ({"max_partitions": 0}, "greater than or equal to 1"),
        ({"max_partitions": 50_000}, "less than or equal to 20000"),
        ({"unknown": 1}, "Extra inputs are not permitted"),
    ],
)
def test_settings_that_make_no_sense(values: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError) as caught:
        SmallFilesOptions.model_validate(values)
    assert reason in str(caught.value)


def test_the_type_is_one_of_the_port() -> None:
    assert isinstance(TYPE, ListenerType)
