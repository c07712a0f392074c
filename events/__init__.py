"""Wire contract: bodies, attributes, codec and schemas of all messages."""
