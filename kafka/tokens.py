"""Tokens of OAUTHBEARER from a file, which somebody else renews."""

import asyncio
from pathlib import Path

from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaConnectionError


class TokenFile(AbstractTokenProvider):  # type: ignore[misc]
    """Reads the token anew for each connection, so that a renewed one counts without a restart."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def token(self) -> str:
        """The token. Raises KafkaConnectionError, which is tried again, while there is none."""
        try:
            text = (await asyncio.to_thread(self._path.read_text, encoding="utf-8")).strip()
        except (OSError, UnicodeDecodeError) as error:
            raise KafkaConnectionError(
                f"the token file {self._path} cannot be read: {error.__class__.__name__}"
            ) from error
        if not text:
            raise KafkaConnectionError(f"the token file {self._path} is empty")
        return text
