"""Violations: the errors that the checks raise."""


class Violation(AssertionError):
    """An invariant does not hold."""

    def __init__(self, invariant: str, detail: str) -> None:
        super().__init__(invariant, detail)
        self.invariant = invariant
        """Its number, such as `I2`; `crash` for any other error."""
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.invariant}: {self.detail}"
