"""End of a token, as its claims state it."""

import base64
import json


def stated_end(token: str) -> float | None:
    """Return when a token ends, in seconds since the Unix epoch; None if it is no JWT, or states no end.

    Its signature is not checked: the end is shown to people, and decides nothing.
    """
    try:
        _, claims, _ = token.split(".")
        return float(json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["exp"])
    except (ValueError, TypeError, KeyError, OverflowError):
        return None
