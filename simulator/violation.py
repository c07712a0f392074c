"""What a checker raises."""


class Violation(AssertionError):
    """An invariant does not hold."""

    def __init__(self, invariant: str, what: str) -> None:
        super().__init__(invariant, what)
        self.invariant = invariant
        """Its number, such as `I2`."""
        self.what = what

    def __str__(self) -> str:
        return f"{self.invariant}: {self.what}"
