"""The real core under a seeded scheduler, with every invariant checked after every step."""
