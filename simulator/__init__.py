"""The simulator for protocol version 4."""
