"""Values of the models, built from their types: a new field or event is covered by itself."""

import enum
import types
from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from hypothesis import reject
from hypothesis import strategies as st
from pydantic import AfterValidator, BaseModel, StringConstraints, ValidationError
from pydantic.fields import FieldInfo

from sluicegate.events.envelope import BODIES, NO_CHECKPOINT, PER_CHECKPOINT, PER_REGION, Envelope, EventType
from sluicegate.events.models import Body, CheckpointCompleted, FilesWritten, Position
from sluicegate.events.notifications import NOTIFICATION_BODIES, Notification, NotificationType

NAMES = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,20}", fullmatch=True)
IDS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=64)
PATHS = st.from_regex(r"[a-z=.]{3,9}(/[^/.]{1,5}){0,2}", fullmatch=True)
NUMBERS = st.integers(0, 10**18 - 1)


class Case(NamedTuple):
    """An event as the codec takes it."""

    envelope: Envelope
    body: Body


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    """Return values of a type as the bodies use them."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return constrained(arguments[0], arguments[1:])
    if origin in (Union, types.UnionType):
        return st.one_of([values_of(each) for each in arguments])
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin is tuple:
        return st.lists(values_of(arguments[0]), max_size=4).map(tuple)
    if origin in (dict, Mapping):
        return st.dictionaries(values_of(arguments[0]), values_of(arguments[1]), max_size=4)
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        return bodies_of(hint)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return st.sampled_from(hint)
    if isinstance(hint, type) and is_dataclass(hint):
        fields = get_type_hints(hint, include_extras=True)
        return st.builds(hint, **{name: values_of(each) for name, each in fields.items()})
    return {
        type(None): st.none(),
        bool: st.booleans(),
        bytes: st.binary(max_size=50),
        str: st.text(st.characters(codec="utf-8"), max_size=30),
    }[hint]


def constrained(hint: Any, constraints: tuple[Any, ...]) -> st.SearchStrategy[Any]:
    bounds = [each for field in constraints if isinstance(field, FieldInfo) for each in field.metadata]
    low = max([each.ge for each in bounds if hasattr(each, "ge")], default=None)
    high = min([each.le for each in bounds if hasattr(each, "le")], default=None)
    if hint is int:
        return st.integers(low, high)
    if hint is float:
        return st.floats(low, high)
    if hint is str:
        given = (each for each in constraints if isinstance(each, StringConstraints))
        wanted = next(given, StringConstraints())
        if wanted.pattern:
            return NAMES
        if any(isinstance(each, AfterValidator) for each in constraints):
            return PATHS
        least, most = wanted.min_length or 0, min(wanted.max_length or 30, 30)
        return st.text(st.characters(codec="utf-8"), min_size=least, max_size=most)
    if get_origin(hint) is tuple and any(isinstance(each, AfterValidator) for each in constraints):
        # Regions of an assignment, each named once, or files.
        return st.lists(values_of(get_args(hint)[0]), min_size=1, max_size=4, unique_by=repr).map(tuple)
    return values_of(hint)


@st.composite
def bodies_of(draw: st.DrawFn, model: type[BaseModel]) -> Any:
    """Return a body with a value for each field."""
    hints = get_type_hints(model, include_extras=True)
    values = {name: draw(values_of(hints[name])) for name in model.model_fields}
    if model is CheckpointCompleted:
        # Nothing is left out: tests/events/test_completions.py has what a reader fills in.
        values["predecessor"] = draw(st.none() | bodies_of(Position))
        values["source_digest"] = values["source_digest"] or "d"
    if model is CheckpointCompleted and draw(st.booleans()):
        values |= {"events": (), "files": draw(bodies_of(FilesWritten))}
    elif model is CheckpointCompleted:
        values["files"] = None
    if model is FilesWritten:
        values["files"] = tuple({file.path: file for file in values["files"]}.values())
    try:
        return model(**values)
    except ValidationError:  # fields that do not go together
        return reject()


@st.composite
def events(draw: st.DrawFn, kind: EventType) -> Case:
    """Return an event with exactly the attributes that its type has."""
    body = draw(bodies_of(BODIES[kind]))
    envelope = Envelope(draw(IDS), kind, draw(NAMES))
    if kind in PER_REGION:
        checkpoint = draw(NUMBERS) if kind in PER_CHECKPOINT else NO_CHECKPOINT
        envelope = envelope._replace(region=draw(NAMES), incarnation=draw(NAMES), checkpoint=checkpoint)
    files = body.files if isinstance(body, CheckpointCompleted) else body
    if isinstance(files, FilesWritten):
        envelope = envelope._replace(writer=draw(NAMES), attempt=draw(IDS), files=len(files.files))
        envelope = envelope._replace(rows=draw(NUMBERS), bytes=draw(NUMBERS))
    return Case(envelope, body)


@st.composite
def notifications(draw: st.DrawFn, kind: NotificationType) -> Notification:
    """Return a message of the commits topic."""
    region = draw(st.just("") | NAMES)
    incarnation = draw(st.just("") | NAMES) if region else ""
    return Notification(
        draw(IDS), kind, draw(NAMES), region, incarnation, draw(bodies_of(NOTIFICATION_BODIES[kind]))
    )
