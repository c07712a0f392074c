"""Names and values of the attributes of messages of version 4, which are headers.

The CloudEvents attributes are headers `ce_*`, as the Kafka protocol binding 1.0 has them in binary mode. The
extension attributes carry what routing and aggregation need, so neither needs a body.
"""

from typing import Final

Header = tuple[str, bytes]
RawHeader = tuple[str, bytes | None]
"""A header as it comes from the log, where values may be absent."""

SPEC_VERSION: Final = b"1.0"
CONTENT_TYPE: Final = b"application/json"
SOURCE: Final = b"/sluicegate"
"""The source of messages of this project; other producers name their own."""
NUMBER_PATTERN: Final = "^(0|[1-9][0-9]{0,17})$"
"""Every number of so many digits fits into 64 bits. One number has one notation."""
SOURCE_PATTERN: Final = r"^[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%]{1,1000}$"
"""Characters of a URI reference (RFC 3986)."""
MAX_ID_LENGTH: Final = 64
