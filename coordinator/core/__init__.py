"""The pure core: log records, time and outcomes in, effects out. No event loop, clock, randomness or I/O."""
