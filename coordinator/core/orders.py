"""Orders: what operators want of a stream, by way of the log."""

from sluicegate.coordinator.core.book import Book
from sluicegate.coordinator.core.state import Decision, LightState, Order, RegionState, Savepoint
from sluicegate.events.models import Assignment, Position, StreamCommand


def moved(decision: Decision) -> list[str]:
    """The regions that the last decision moves: those of which something can be held out instead."""
    before = decision.before.regions if decision.before else {}
    return [name for name, at in decision.cut.items() if name not in before or before[name].ref != at]


def obey(book: Book, stream: str, body: StreamCommand) -> None:
    """Do what an operator orders; what does not apply any more changes nothing."""
    state = book.state
    match body.command:
        case "resume":
            state.blocked, state.paused = None, False
        case "pause":
            state.blocked = f"an operator paused the stream; go on with: sluicegate resume --stream {stream}"
            state.paused = True
        case "remove" if body.region is not None and body.region in known_regions(state):
            book.region(body.region).removed = True
        case "accept" if body.region is not None and body.lineage is not None:
            region = book.region(body.region)
            if body.lineage not in region.lineages:
                _accept(region, body.lineage, body)
        case "void" if state.pending and state.pending[-1].id == body.decision:
            name, checkpoint = body.region, body.checkpoint
            if name is not None and checkpoint is not None and name in moved(state.pending[-1]):
                state.pending[-1].void = (name, checkpoint)
        case "savepoint" | "drain" if body.name is not None:
            _save(book, body.name, drain=body.command == "drain")


def _accept(region: RegionState, lineage: str, body: StreamCommand) -> None:
    if "behind" in body.model_fields_set:
        region.accepted_behind[lineage] = body.behind
    elif lineage not in region.accepted:
        region.accepted.append(lineage)


def known_regions(state: LightState) -> set[str]:
    """Those that were opened, or that an assignment has; others' openings were refused."""
    assigned = {name for each in (state.assignment, state.next) if each for name in each.regions}
    return {*state.regions, *assigned}


def _save(book: Book, name: str, *, drain: bool) -> None:
    """Aim at the last completed checkpoint of every region; also of those that the next assignment leaves."""
    held, following = book.state.assignment, book.state.next
    wanted = (following or held or Assignment(number=0, regions=())).regions
    targets: dict[str, Position] = {}
    for each in dict.fromkeys((*wanted, *(held.regions if held else ()))):
        region = book.region(each)
        if region.live is None:
            continue
        if (at := _last_completed(book, each)) is not None:
            targets[each] = at
        if drain and each in wanted and not region.left:
            last = book.ledgers[each, region.live].last_completed()
            region.closed = True
            region.final = last if last is not None else region.lineages[region.live].decided
            book.leave(region)
    order, state = Order(name=name, drain=drain), book.state
    if targets or state.savepoint:
        state.savepoint = (state.savepoint or Savepoint()).joined_by(order, targets)
    elif state.pending:
        pending = state.pending[-1]
        pending.savepoint = (pending.savepoint or Savepoint()).joined_by(order, {})
    else:
        book.taken.append(order)


def _last_completed(book: Book, name: str) -> Position | None:
    """The last completed checkpoint of a region that no cut has, along its chain of lineages."""
    for lineage in reversed(book.state.regions[name].chain):
        last = book.ledgers[name, lineage].last_completed()
        if last is not None:
            return Position(lineage=lineage, checkpoint=last)
    return None
