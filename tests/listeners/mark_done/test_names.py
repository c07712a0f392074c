"""Each partition has one name, whatever characters its values have."""

import itertools

from sluicegate.listeners.mark_done.policy import name_of

ODD = ("a", "a/b", "a%2Fb", "a=b", "a%3Db", "%", "%25", "", "a/b=c", None)


def test_two_partitions_have_two_names() -> None:
    values = [{"x": one, "y": other} for one, other in itertools.product(ODD, repeat=2)]
    odd_keys: list[dict[str, str | None]] = [
        {"x/y": "1"},
        {"x": "1", "y": "2"},
        {"x=1/y": "2"},
        {"x=1": "2"},
        {"x": "1=2"},
        {},
    ]
    names = [name_of(each) for each in [*values, *odd_keys[:1], *odd_keys[2:]]]
    assert len(set(names)) == len(names)


def test_names_are_those_of_hive() -> None:
    assert name_of({"dt": "2013-01-01", "hour": "05"}) == "dt=2013-01-01/hour=05"
    assert name_of({"dt": None, "at": "10:30/11:30"}) == "dt/at=10:30%2F11:30"
