"""Error of a replay that cannot or must not run; the text has the reason and the remedy."""


class ReplayRefused(Exception):
    """The replay was refused; nothing changed except the steps already reported."""
