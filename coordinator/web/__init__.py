"""The live page and the HTTP interface of the service. Both only read."""
