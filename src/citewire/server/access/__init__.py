"""Authentication and authorization: keys, tokens, sessions, capabilities."""
