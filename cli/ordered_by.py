"""Options of every order: its sender and its reason, which the log keeps beside the order."""

import os
import socket
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

import sluicegate
from sluicegate.events.orders import MOST_ABOUT, MOST_CHARACTERS, MOST_OF_REASON, Order

F = TypeVar("F", bound=Callable[..., Any])

BY_VARIABLE: Final = "SLUICEGATE_BY"
"""Variable that names the sender, for automation."""

_BY: Final = "sluicegate.by"
_REASON: Final = "sluicegate.reason"


def _text(most: int, kept: str) -> Callable[[click.Context, click.Parameter, str | None], str | None]:
    """Return a callback that keeps a printable text of at most so many characters for `current_order`."""

    def keep(context: click.Context, _: click.Parameter, value: str | None) -> str | None:
        if value is None:
            return None
        if len(value) > most:
            raise click.BadParameter(f"it has {len(value):,} characters, and {most} are allowed")
        if not value.isprintable():
            raise click.BadParameter(
                "control characters, line breaks and invisible marks are not allowed. Give one line of text"
            )
        context.meta[kept] = value
        return value

    return keep


_by_option = click.option(
    "--by",
    metavar="NAME",
    envvar=BY_VARIABLE,
    expose_value=False,
    callback=_text(MOST_CHARACTERS, _BY),
    help="Name of the sender, for `sluicegate audit`. Default: the user of the operating system.",
)


def reason_option(text: str, **how: Any) -> Callable[[F], F]:
    """Return the option `--reason` with this help; `how` as of `click.option`."""
    return click.option("--reason", metavar="TEXT", callback=_text(MOST_OF_REASON, _REASON), help=text, **how)


def by_option(command: F) -> F:
    """Add the option `--by` to an order that has a `--reason` of its own."""
    return _by_option(command)


def order_options(command: F) -> F:
    """Add the options of an order: `--by` and `--reason`."""
    return _by_option(
        reason_option("Reason of the order, for `sluicegate audit`.", expose_value=False)(command)
    )


def current_order(about: str = "") -> Order:
    """Return the claim of the command that runs; `about` has arguments that the order's body lacks."""
    context = click.get_current_context(silent=True)
    meta, names = ({} if context is None else context.meta), list[str]()
    while context is not None and context.parent is not None:
        names.insert(0, context.info_name or "")
        context = context.parent
    return Order(
        order=_clean(" ".join(names), MOST_CHARACTERS) or "unknown",
        by=meta.get(_BY) or _clean(_user(), MOST_CHARACTERS) or "unknown",
        host=_clean(socket.gethostname(), MOST_CHARACTERS) or "unknown",
        at=time.time_ns() // 1_000_000,
        release=sluicegate.__version__,
        reason=meta.get(_REASON) or "",
        about=_clean(about, MOST_ABOUT),
    )


def _user() -> str:
    """Return the user of the process; after `sudo` also the user who called it."""
    number = os.getuid()
    try:
        import pwd

        name = pwd.getpwuid(number).pw_name
    except (ImportError, KeyError):
        # A container may run as a number without a name.
        name = f"uid {number}"
    before = os.environ.get("SUDO_USER", "")
    return f"{name} (sudo by {before})" if number == 0 and before else name


def _clean(text: str, most: int) -> str:
    """Return a text of the machine without unprintable characters, cut to a length."""
    return "".join(each for each in text if each.isprintable())[:most]
