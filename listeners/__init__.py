"""Listeners: work that follows a commit, each with a state and a backlog of its own."""
