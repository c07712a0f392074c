"""Durations and sizes: the forms that settings take, and those that they refuse."""

import pytest

from sluicegate.coordinator.settings.model import parse_bytes, parse_seconds


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        (2, 2.0),
        (0.5, 0.5),
        ("2.5", 2.5),
        ("500ms", 0.5),
        ("30s", 30),
        ("15 m", 900),
        ("2h", 7200),
        ("7d", 604800),
    ],
)
def test_durations(given: object, seconds: float) -> None:
    assert parse_seconds(given) == seconds


@pytest.mark.parametrize(
    "given", [0, -1, "0s", "", "s", "5 weeks", "1m30s", True, None, float("inf"), float("nan"), "1e3"]
)
def test_what_is_no_duration(given: object) -> None:
    with pytest.raises(ValueError, match="must be a duration above 0"):
        parse_seconds(given)


@pytest.mark.parametrize(
    ("given", "size"), [(1, 1), ("10", 10), ("64KiB", 65536), ("1.5MiB", 1572864), ("2 GiB", 2 << 30)]
)
def test_sizes(given: object, size: int) -> None:
    assert parse_bytes(given) == size


@pytest.mark.parametrize("given", [0, 1.5, "1.5", "0.3KiB", "5MB", "", None, False, float("inf")])
def test_what_is_no_size(given: object) -> None:
    with pytest.raises(ValueError, match="must be a size above 0"):
        parse_bytes(given)
