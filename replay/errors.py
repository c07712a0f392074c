"""What a replay cannot or must not do; the text says why, and what goes on."""


class ReplayRefused(Exception):
    """Nothing was changed beyond what was told before."""
