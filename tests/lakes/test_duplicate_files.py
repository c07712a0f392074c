"""No file is twice in a commit, whether its event is checked now or was checked before."""

from types import SimpleNamespace
from typing import cast

import pytest

from sluicegate.lakes.committer import UniquePaths, has_duplicates, is_plain, path_digest
from sluicegate.lakes.port import BadFiles, Checked


def checked(*paths: str) -> Checked:
    return cast(Checked, SimpleNamespace(paths=b"".join(map(path_digest, paths))))


def test_a_file_of_two_checked_events_is_met() -> None:
    twins = UniquePaths()
    assert twins.add_checked([checked("a", "b"), checked("c")])
    assert not twins.add_checked([checked("d", "b")])
    assert twins.add_checked([checked("d")]), "a refused event leaves nothing"
    assert not twins.add_checked([checked("e", "e")])
    with pytest.raises(BadFiles, match="the file c is there twice"):
        twins.add_path("c")


def test_a_file_that_is_checked_now_is_met_later() -> None:
    twins = UniquePaths()
    twins.add_path("a")
    assert not twins.add_checked([checked("a")])


def test_paths_of_several_events() -> None:
    assert has_duplicates([checked("a").paths, checked("b", "a").paths])
    assert not has_duplicates([checked("a").paths, checked("b").paths])


@pytest.mark.parametrize("path", ["a//b", "a/./b", "../a", "a/..", "/a"])
def test_a_path_in_another_form_is_not_plain(path: str) -> None:
    assert not is_plain(path)
    assert is_plain("a/b.c/..d")
