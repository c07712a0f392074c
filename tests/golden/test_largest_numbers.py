"""The largest number that an event may state, in each of its fields, wedges nothing.

The coordinator counts on from such numbers. Everything that it appends is read again by its own reader, and
the next checkpoint is committed: at once, or after a reset of the region.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest

from sluicegate.coordinator.core.state_record import StateRecord
from sluicegate.coordinator.stream.state_records import decode_record, encode_record
from sluicegate.events.codec import EVENT_SHAPES
from sluicegate.events.envelope import BODIES, PER_CHECKPOINT, PER_REGION, Envelope, EventType, wire_type
from sluicegate.events.models import Body
from tests.golden.coordinator import STREAM
from tests.golden.script import Script
from tests.golden.test_over_the_wire import read_messages

LARGEST_ATTRIBUTE: Final = 10**18 - 1
_AT: Final = {"incarnation": "q.0", "checkpoint": 0, "digest": "range-0"}
_HEAD: Final = {"id": 1, "identity": "1"}
_COMMANDS: Final[Mapping[str, Mapping[str, Any]]] = {
    **{name: {"region": "r1", "number": 0} for name in ("remove", "discard")},
    **{name: {"number": 0} for name in ("close", "withdraw")},
    "revert": {"decision": 2, "region": "r1"},
    "resume": {"decision": 2, "head": _HEAD},
    "skip": {"offset": 3, "digest": "d"},
}
_BODIES: Final[Mapping[EventType, Mapping[str, Any]]] = {
    EventType.REGION_REGISTERED: {
        "base": _AT,
        "replaces": "q.0",
        "planned": [{"checkpoint": 1, "digest": "x"}],
        "assignment": {"number": 0, "regions": ["r1"], "after": 0},
    },
    EventType.CHECKPOINT_COMPLETED: {
        "events": [],
        "predecessor": _AT,
        "source_digest": "x",
        "watermark": 0,
    },
    EventType.CHECKPOINT_FAILED: {"outcome": "lost"},
    EventType.REGION_HEARTBEAT: {"idle": True, "interval": 1, "run": "RUN"},
    EventType.REGION_CLOSED: {"final": 0, "run": "RUN"},
    EventType.STREAM_POLICY: {"number": 2, "partial": "never", "allowed_locations": ["memory://"]},
    EventType.CUT_DECIDED: {"decision": 2, "cut": {"r1": _AT}, "digest": "d", "head": _HEAD},
    EventType.CUT_COMMITTED: {"decision": 2, "digest": "d", "table": "t", "snapshot": _HEAD},
    EventType.CUT_REVERTED: {"decision": 2, "digest": "d", "table": "t", "snapshot": _HEAD},
    EventType.CUT_ABANDONED: {"decision": 2, "attempt": 1, "kind": "forced", "regions": ["r1"]},
}
"""By type, a body that fits the state of the stream."""


def limits(schema: Mapping[str, Any], found: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[Any]:
    """Yield the path and the largest value of each number in a schema: also of fields with a default."""
    if "$ref" in schema:
        schema = found[schema["$ref"].rpartition("/")[2]]
    for option in schema.get("anyOf", ()):
        yield from limits(option, found, path)
    if schema.get("type") == "integer" and "maximum" in schema:
        yield path, schema["maximum"]
    for name, inner in schema.get("properties", {}).items():
        yield from limits(inner, found, (*path, name))
    for name in ("items", "additionalProperties"):
        if isinstance(inner := schema.get(name), dict):
            yield from limits(inner, found, (*path, "*"))


def with_number(value: Any, path: tuple[str, ...], number: int) -> Any:
    """Return a body with a number at a path; None if the body has no such place."""
    if not path:
        return number
    name, *rest = path
    if name == "*":
        if not value:
            return None
        items = list(value.items()) if isinstance(value, dict) else list(enumerate(value))
        changed = {key: with_number(item, tuple(rest), number) for key, item in items}
        return changed if isinstance(value, dict) else list(changed.values())
    if rest and not isinstance(value.get(name), dict | list):
        return None
    changed = with_number(value.get(name), tuple(rest), number)
    return None if changed is None else {**value, name: changed}


def cases() -> Iterator[Any]:
    """Yield type, body and the attribute of the checkpoint."""
    bodies = [(kind, body) for kind, body in _BODIES.items()]
    bodies += [(EventType.STREAM_COMMAND, {"command": name, **body}) for name, body in _COMMANDS.items()]
    for kind, body in bodies:
        schema = BODIES[kind].model_json_schema()
        name = body.get("command", "")
        for path, most in limits(schema, schema.get("$defs", {})):
            # A heartbeat is either idle, or tells that a checkpoint begins.
            plain = {**body, "idle": False} if path == ("begins",) else body
            if path == ("takes_over",):
                plain = {"assignment": body["assignment"]}
            if (changed := with_number(plain, path, most)) is not None:
                yield pytest.param(kind, changed, 1, id=f"{kind}-{name}-{'.'.join(path)}")
        if kind in PER_CHECKPOINT:
            yield pytest.param(kind, body, LARGEST_ATTRIBUTE, id=f"{kind}-checkpoint")
    yield pytest.param(EventType.FILES_WRITTEN, None, LARGEST_ATTRIBUTE, id="files.written-checkpoint")
    yield pytest.param(EventType.FILES_WRITTEN, None, 1, id="files.written-counts")


@pytest.mark.parametrize(("kind", "body", "checkpoint"), [*cases()])
def test_the_largest_number_wedges_nothing(
    kind: EventType, body: dict[str, Any] | None, checkpoint: int
) -> None:
    script = Script()
    script.run("regions r1\nregister r1 q.0\nbatch r1 q.0 0 a\n")
    event: Body | None = None
    if body is not None:
        run = {"run": script.run_of("r1", "q.0")} if "run" in body else {}
        event = BODIES[kind].model_validate({**body, **run})
    at = ("r1", "q.new" if kind is EventType.REGION_REGISTERED else "q.0") if kind in PER_REGION else ("", "")
    number = checkpoint if kind in PER_CHECKPOINT else -1
    script.world.append(kind, event, (*at, number))
    if kind is EventType.FILES_WRITTEN:
        entry = script.world.log[-1]
        counted = entry.envelope._replace(rows=LARGEST_ATTRIBUTE, bytes=LARGEST_ATTRIBUTE)
        script.world.log[-1] = entry._replace(envelope=counted)
    script.run("tick 20000\n")
    read(script)
    again(script)
    read(script)


def read(script: Script) -> None:
    """Read everything in the log and in the state topic again."""
    read_messages(script.world)
    record = StateRecord.model_validate_json(script.world.record or "")
    assert decode_record(STREAM, encode_record(record)) == record


def again(script: Script) -> None:
    """Go on as an operator does: resume, a reset or the next assignment, and another checkpoint."""
    state = script.reader().state
    script.run("command resume\n")
    if (made := state.unresolved) is not None:
        raise AssertionError(f"decision {made.id} has no outcome")
    current = state.assignment
    assert current is not None
    region = state.regions["r1"]
    if region.removed or region.has_ended:
        number, after = current.number + 1, state.decided
        how = f"number={number} after={after}"
    else:
        how = f"number={current.number} after={current.after}"
    at = region.position
    assert at is not None
    base = f"{at.incarnation}:{at.checkpoint}:{at.digest}"
    life = region.live_incarnation
    replaces = f"replaces={life}" if life is not None and how.startswith(f"number={current.number} ") else ""
    before = state.decided
    found = script.run(
        f"register r1 q.again base={base} {how} {replaces}\n"
        f"batch r1 q.again 0 more after={base}\n"
        "tick 20000\n"
    )
    assert script.reader().state.decided == before + 1, found
    assert script.reader().state.unresolved is None, found


def test_every_event_of_the_log_has_a_case() -> None:
    assert {wire_type(each.values[0]) for each in cases()} == {*EVENT_SHAPES}
    assert Envelope._fields[-4:-1] == ("files", "rows", "bytes")
