"""Draw the state diagrams of a document: `python -m sluicegate.coordinator.diagrams [--check] [FILE]`.

The diagrams are between `<!-- states: KIND -->` and `<!-- end -->`. The core's tables of transitions are
their only source.
"""

import argparse
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from sluicegate.coordinator.core.state import REGION, RegionPhase, Transition

TABLES: Final[Mapping[str, Sequence[Transition]]] = {"region": REGION}
DEFAULT_FILE: Final = Path("docs/consistency.md")
_PLACE: Final = re.compile(r"(<!-- states: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
_MOST_ARROWS: Final = 4
"""Arrows of one row. A row with more is listed below the diagram, which would be unreadable."""

_WIDTH: Final = 118


def diagram(kind: str) -> str:
    """Return one table of transitions: as a Mermaid diagram, and the rows with many arrows as a list."""
    drawn = [each for each in TABLES[kind] if _arrows(each) <= _MOST_ARROWS]
    lines = ["```mermaid", "stateDiagram-v2", *(line for each in drawn for line in _draw(each)), "```"]
    rest = [_describe(each) for each in TABLES[kind] if each not in drawn]
    return "\n".join([*lines, *(["", *rest] if rest else [])]) + "\n"


def render(text: str) -> str:
    """Return the document with current diagrams. Raises KeyError for an unknown kind."""
    return _PLACE.sub(lambda place: f"{place[1]}{diagram(place[2])}{place[3]}", text)


def _arrows(transition: Transition) -> int:
    return len(transition.sources) * len(transition.targets)


def _draw(transition: Transition) -> Iterator[str]:
    # In Mermaid a colon begins the label, so the label itself must not have one.
    label = f"{transition.event} ({transition.cause.replace(': ', ', ')})"
    for source in transition.sources:
        for target in transition.targets:
            yield f"    {_state(source)} --> {_state(target)}: {label}"


def _state(phase: RegionPhase | None) -> str:
    """Return the name of a phase; a region that is not in the state is at the start or the end."""
    return phase.value if phase is not None else "[*]"


def _describe(transition: Transition) -> str:
    sources, targets = (
        ", ".join(each.value if each is not None else "absent" for each in phases)
        for phases in (transition.sources, transition.targets)
    )
    text = f"- `{transition.event}`, from {sources} to {targets}: {transition.cause}"
    return textwrap.fill(text, _WIDTH, subsequent_indent="  ")


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
