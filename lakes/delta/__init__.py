"""Delta: append tables, committed by a put-if-absent of the next version of the log."""
