"""Plants a defect: replaces a piece of one function's source for the length of a block."""

import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, NamedTuple


class Defect(NamedTuple):
    """A guard removed or reversed, and the invariant that must be seen broken."""

    name: str
    owner: Any
    """The class or module that the function belongs to."""
    function: str
    right: str
    wrong: str
    breaks: str
    favour: tuple[str, ...] = ()
    """The faults without which it is seen late."""


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
    holders = _holders(defect.owner, defect.function, original)
    for holder in holders:
        setattr(holder, defect.function, namespace[defect.function])
    try:
        yield
    finally:
        for holder in holders:
            setattr(holder, defect.function, original)


def _holders(owner: Any, function: str, original: Callable[..., Any]) -> list[Any]:
    """The owner, and the modules that have imported the function by its name."""
    if not isinstance(owner, ModuleType):
        return [owner]
    ours = [module for name, module in sys.modules.items() if name.startswith("sluicegate.")]
    return [module for module in ours if getattr(module, function, None) is original]
