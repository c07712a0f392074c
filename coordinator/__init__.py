"""The coordinator: its core, the shell that runs it, and the command line."""
