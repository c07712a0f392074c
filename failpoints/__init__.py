"""Failpoints: named places between two effects, where a test can stop, delay or end the process."""
