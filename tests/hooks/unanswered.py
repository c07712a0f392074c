"""A registration that nobody answers, with a limit that suffices for this machine to publish it."""

from sluicegate.writer_hooks import PublishFailed, RegistrationUnanswered
from sluicegate.writer_hooks.options import SinkOptions
from sluicegate.writer_hooks.registration import ask
from tests.integration.waiting import BACKSTOP


def unanswered(options: dict[str, str], limit: int = 1) -> tuple[int, str]:
    """Register where nobody answers; return the limit in seconds, and the text of the error."""
    while True:
        region = SinkOptions.parse(options | {"registration.timeout": str(limit)}).region
        try:
            ask(region, region.registration("i", None))
        except RegistrationUnanswered as error:
            return limit, str(error)
        except PublishFailed:
            assert limit < BACKSTOP
            limit *= 4
        else:
            raise AssertionError("somebody has answered")
