"""Who may do what: keys, tokens, sessions, capabilities."""
