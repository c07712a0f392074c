"""Settings of the service and of the commands.

`model.py` has one pydantic model for each section; types, limits, defaults and texts of the reference page
are there and nowhere else. `sources.py` reads the TOML file and the environment over it, and turns problems
into sentences that name the key and its source. `reload.py` compares the settings in force with a changed
file: what may change while the service runs, and what needs a restart or an order of an operator.

All problems are reported together, at the start. A key that nobody knows is an error with the nearest known
name. A value of a secret never appears in a message."""
