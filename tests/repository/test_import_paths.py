"""Paths of imports are short: a reader follows a call through few modules."""

from functools import cache
from typing import Final

import grimp
from grimp import ImportGraph

LONGEST: Final = 12
"""Modules of the longest path. It only falls: lower it after a change that makes all paths shorter."""


def longest_path(graph: ImportGraph) -> tuple[str, ...]:
    """Return a longest path of imports, from a module that no other one imports."""

    @cache
    def below(module: str) -> tuple[str, ...]:
        paths = [below(each) for each in sorted(graph.find_modules_directly_imported_by(module))]
        return (module, *max(paths, key=len, default=()))

    return max((below(module) for module in sorted(graph.modules)), key=len)


def test_no_path_of_imports_is_longer() -> None:
    graph = grimp.build_graph(
        "sluicegate", include_external_packages=False, exclude_type_checking_imports=True
    )
    path = longest_path(graph)
    assert len(path) <= LONGEST, "too long: " + " > ".join(path)
    assert len(path) == LONGEST, f"shorter than before: set LONGEST to {len(path)}"


def test_the_longest_of_several_paths_is_found() -> None:
    graph = ImportGraph()
    for importer, imported in (("a", "b"), ("b", "c"), ("c", "d"), ("a", "d"), ("e", "c")):
        graph.add_import(importer=importer, imported=imported)
    assert longest_path(graph) == ("a", "b", "c", "d")
