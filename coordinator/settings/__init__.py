"""Settings of the service and the commands: their sources, sections and units."""
