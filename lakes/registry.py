"""Table formats by name; each adapter is imported when it is first asked for."""

from importlib import import_module
from typing import Final, cast

from sluicegate.lakes.port import Adapter, TableRefused

_FOR_TESTS: Final = "memory"
_ADAPTERS: Final = {
    _FOR_TESTS: ("sluicegate.lakes.memory", ""),
    "paimon": ("sluicegate.lakes.paimon.adapter", "paimon"),
}


def adapter(name: str) -> Adapter:
    """The adapter of a table format. Raises TableRefused with an install hint when it is not there."""
    if name not in _ADAPTERS:
        known = ", ".join(sorted(_ADAPTERS.keys() - {_FOR_TESTS}))
        raise TableRefused(f"unknown table format {name!r}; this release knows: {known}. Set `format` to one")
    module, extra = _ADAPTERS[name]
    try:
        loaded = import_module(module)
    except ImportError as error:
        raise TableRefused(
            f"the table format {name} needs a package that is not installed ({error.name}); "
            f'install it with: pip install "sluicegate[{extra}]"'
        ) from error
    return cast(Adapter, loaded.ADAPTER)
