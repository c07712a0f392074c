"""Replay of a stream's log: verification, repair, a rebuilt table, orphans."""
