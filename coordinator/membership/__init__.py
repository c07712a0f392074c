"""Membership in the consumer group: local members, and the eviction of dead ones."""
