"""Plants a defect: replaces a piece of one function's source for the length of a block."""

import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple


class Defect(NamedTuple):
    """A guard removed or reversed, and the invariants of which one at least must be seen broken."""

    name: str
    owner: Any
    """The class or module that the function belongs to."""
    function: str
    right: str
    wrong: str
    breaks: tuple[str, ...]


@contextmanager
def planted(defect: Defect) -> Iterator[None]:
    """Run the block with the defect in the product's code."""
    original: Callable[..., Any] = getattr(defect.owner, defect.function)
    source = textwrap.dedent(inspect.getsource(original))
    if source.count(defect.right) != 1:
        raise ValueError(f"{defect.name}: the code has changed, {defect.right!r} is not there once")
    module = sys.modules[original.__module__]
    namespace: dict[str, Any] = {}
    exec(  # noqa: S102
        compile(source.replace(defect.right, defect.wrong), module.__file__ or "?", "exec"),
        module.__dict__,
        namespace,
    )
    setattr(defect.owner, defect.function, namespace[defect.function])
    try:
        yield
    finally:
        setattr(defect.owner, defect.function, original)
