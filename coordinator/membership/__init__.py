"""Membership in the consumer group: the local members, their eviction, and the owner of a stream."""
