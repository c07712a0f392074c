"""Descent: which lineages go on from which, and what an opening makes void of what others built.

A lineage goes on from the one before it in its region, and from the parents in other regions that it names.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from sluicegate.coordinator.core.book import Book
from sluicegate.coordinator.core.state import LineageState, RegionState
from sluicegate.events.models import Assignment, Parent


class Place(NamedTuple):
    """A lineage of a region."""

    region: str
    lineage: str

    @classmethod
    def of(cls, parent: Parent) -> "Place":
        """The lineage that is named as a parent."""
        return cls(parent.region, parent.lineage)


def lived(book: Book, place: Place) -> LineageState:
    """What is known of a lineage."""
    return book.state.regions[place.region].lineages[place.lineage]


def last(parent: Parent) -> int:
    """The named checkpoint; -1 if nothing of the parent is."""
    return -1 if parent.checkpoint is None else parent.checkpoint


def checkpoint_of(limit: int | None) -> int | None:
    """The checkpoint that a lineage with this limit ends at; None if it ends before its first."""
    return None if limit is None or limit < 0 else limit


def line(region: RegionState) -> list[str]:
    """The region's lineages that were not dropped, in the order of their openings.

    Also one that a cut passed by with nothing of it: what goes on from it builds on its parents.
    """
    return [name for name, each in region.lineages.items() if not each.dropped]


def successor(book: Book, place: Place) -> Place | None:
    """The lineage that goes on from this one in its own region."""
    names = line(book.state.regions[place.region])
    following = names[names.index(place.lineage) + 1 :] if place.lineage in names else []
    return Place(place.region, following[0]) if following else None


def takers(book: Book, place: Place) -> list[Place]:
    """The lineages of other regions that name this one as a parent."""
    return [
        Place(name, lineage)
        for name, region in book.state.regions.items()
        for lineage in line(region)
        if any(Place.of(parent) == place for parent in region.lineages[lineage].parents)
    ]


def descendants(book: Book, roots: Iterable[Place]) -> list[Place]:
    """These, and all that goes on from them."""
    found: dict[Place, None] = {}
    ahead = list(roots)
    while ahead:
        place = ahead.pop()
        if place in found:
            continue
        found[place] = None
        following = successor(book, place)
        ahead += [*takers(book, place), *([following] if following else [])]
    return list(found)


def ancestors(book: Book, places: Iterable[Place]) -> set[Place]:
    """These, and all that they go on from."""
    found: set[Place] = set()
    ahead = list(places)
    while ahead:
        place = ahead.pop()
        if place in found:
            continue
        found.add(place)
        names = line(book.state.regions[place.region])
        before = names[: names.index(place.lineage)] if place.lineage in names else []
        ahead += [Place(place.region, name) for name in before]
        ahead += [Place.of(parent) for parent in lived(book, place).parents]
    return found


def displaced(
    book: Book, parent: Parent, region: str, wanted: Assignment, named: Iterable[Place]
) -> list[Place]:
    """What an opening of this region, under the wanted assignment, displaces by naming a parent.

    Whoever went on from the parent elsewhere than at the named checkpoint, or under an older assignment
    that does not have the region, with all that goes on from it. Siblings stay: those of one assignment at
    the same checkpoint, and those of a lineage that only takes the place of its region's last one. The
    parent's own region has to go on under the wanted assignment for that: else its work is taken over.
    """
    place, own = Place.of(parent), parent.region == region
    following, others = successor(book, place), takers(book, place)
    stays = not own and parent.region in wanted.regions
    sibling = following is not None and _are_siblings(book, following, region, wanted.number)
    roots = [following] if following and not (stays and sibling) else []
    if lived(book, place).limit not in (None, last(parent)):
        roots += others
    elif not (own and following):
        merged = ancestors(book, named)
        strangers = [other for other in others if not _are_siblings(book, other, region, wanted.number)]
        roots += [other for other in strangers if other not in merged]
    return descendants(book, roots)


def _are_siblings(book: Book, place: Place, region: str, number: int) -> bool:
    """Whether a lineage and one that this region opens now share what they go on from."""
    known = lived(book, place).assignment
    if known >= number:
        return True
    regions = next((each.regions for each in book.state.assignments if each.number == known), ())
    return region in regions and region != place.region


def held_out(book: Book, parent: Parent) -> Parent | None:
    """The checkpoint, held out of all cuts, because of which nothing can build on a parent's named one."""
    seen, ahead = set[Parent](), [parent]
    while ahead:
        parent = ahead.pop()
        known = lived(book, Place.of(parent))
        if parent in seen or (known.decided is not None and known.decided >= last(parent)):
            # What is decided builds on nothing that is held out, however long its history is.
            continue
        seen.add(parent)
        if known.held is not None and last(parent) >= known.held:
            return Parent(region=parent.region, lineage=parent.lineage, checkpoint=known.held)
        ahead += _below(book, Place.of(parent))
    return None


def held_out_before(book: Book, place: Place) -> Parent | None:
    """The checkpoint of what a lineage goes on from that is held out of all cuts, if there is one."""
    found = (held_out(book, parent) for parent in _below(book, place))
    return next((each for each in found if each is not None), None)


def _below(book: Book, place: Place) -> list[Parent]:
    """Where a lineage, and those before it in its region's chain, begin."""
    chain = book.state.regions[place.region].chain
    before = chain[: chain.index(place.lineage)] if place.lineage in chain else []
    known = {name: lived(book, Place(place.region, name)) for name in (*before, place.lineage)}
    ends = {name: checkpoint_of(known[name].limit) for name in before}
    own = [Parent(region=place.region, lineage=name, checkpoint=at) for name, at in ends.items()]
    return [parent for each in known.values() for parent in each.parents] + own


def bases(book: Book, place: Place) -> Iterator[Parent]:
    """The checkpoints of other regions that are in every cut which this lineage is in."""
    for parent in lived(book, place).parents:
        if parent.checkpoint is not None:
            yield parent
            continue
        # It builds on nothing of the parent, so on what the parent itself went on from.
        chain = book.state.regions[parent.region].chain
        before = chain[: chain.index(parent.lineage)] if parent.lineage in chain else []
        for name in before:
            limit = lived(book, Place(parent.region, name)).limit
            if limit is not None and limit >= 0:
                yield Parent(region=parent.region, lineage=name, checkpoint=limit)
        for name in (*before, parent.lineage):
            yield from bases(book, Place(parent.region, name))
