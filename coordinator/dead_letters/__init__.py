"""Dead letters of the service: unusable and unroutable events, each sent once with its reason."""
