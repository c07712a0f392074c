"""Draw the state diagrams of a document: `python -m sluicegate.coordinator.diagrams [--check] [FILE]`.

The diagrams are between `<!-- states: KIND -->` and `<!-- end -->`, one for each table of transitions.
"""

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from sluicegate.coordinator.core.transitions import GROUPS, TABLES, Transition

DEFAULT_FILE: Final = Path("docs/consistency.md")
_PLACE: Final = re.compile(r"(<!-- states: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def diagram(kind: str) -> str:
    """Return the diagram of one transition table, as Mermaid text."""
    table = TABLES[kind]
    states = {state for each in table for state in (*each.sources, *each.targets)}
    lines = ["```mermaid", "stateDiagram-v2"]
    lines += [line for name in _outermost(states) for line in _group(name, "    ")]
    lines += [f"    {line}" for each in table for line in _arrows(each)]
    return "\n".join([*lines, "```"]) + "\n"


def render(text: str) -> str:
    """Return the document with current diagrams. Raises KeyError for an unknown kind."""
    return _PLACE.sub(lambda place: f"{place[1]}{diagram(place[2])}{place[3]}", text)


def _outermost(states: set[str]) -> list[str]:
    inner = {name for members in GROUPS.values() for name in members}
    return [name for name in GROUPS if name in states and name not in inner]


def _group(name: str, indent: str) -> Iterator[str]:
    if name not in GROUPS:
        yield f"{indent}{name}"
        return
    yield f"{indent}state {name} {{"
    for member in GROUPS[name]:
        yield from _group(member, indent + "    ")
    yield f"{indent}}}"


def _arrows(transition: Transition) -> Iterator[str]:
    # In Mermaid a colon begins the label, so the label itself must not have one.
    label = transition.by.replace(": ", " ")
    for source in transition.sources:
        for target in transition.targets:
            yield f"{source} --> {target}: {label}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m sluicegate.coordinator.diagrams", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, and fail if the file is stale")
    parser.add_argument("file", nargs="?", type=Path, default=DEFAULT_FILE, metavar="FILE")
    options = parser.parse_args(arguments)
    text = options.file.read_text(encoding="utf-8")
    current = render(text)
    if not options.check:
        options.file.write_text(current, encoding="utf-8")
        return 0
    if current != text:
        print(f"{options.file} is stale; run python -m sluicegate.coordinator.diagrams")
    return int(current != text)


if __name__ == "__main__":
    sys.exit(main())
