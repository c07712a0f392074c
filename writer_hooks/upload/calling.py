"""Process of one call of `before.publish`: `python -m ... module:function file uri`."""

import os
import sys
from importlib import import_module
from typing import Final

_NICENESS: Final = 10
"""Tasks and the uploader come first."""


def main() -> None:
    """Call the function that the arguments name. Its exception ends the process with a traceback."""
    function, local, uri = sys.argv[1:]
    os.nice(_NICENESS)
    module, _, name = function.partition(":")
    getattr(import_module(module), name)(local, uri)


if __name__ == "__main__":
    main()
