"""Host of listeners: feeds them the outcomes of a stream, runs their actions, and keeps their records."""
