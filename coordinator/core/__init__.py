"""The core of protocol version 4: pure, synchronous, deterministic."""
