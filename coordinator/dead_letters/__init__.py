"""Dead letters of the service: unusable and unroutable events, sent once and with their reason."""
