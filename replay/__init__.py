"""What a stream's log decided, and what becomes of it: verification, repair, a fresh table, orphans."""
