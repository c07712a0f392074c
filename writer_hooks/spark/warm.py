"""Python workers that stay fast: what the first task of a worker loads is kept out of garbage collection."""

import gc

_kept = False


def keep_modules() -> None:
    """Exclude all present objects of this worker from garbage collection, once.

    Spark collects garbage after each task. The modules of a table format alone take 0.2 s of that.
    """
    global _kept  # noqa: PLW0603
    if not _kept:
        _kept = True
        gc.collect()
        gc.freeze()
