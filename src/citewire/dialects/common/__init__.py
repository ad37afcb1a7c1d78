"""What several dialects share."""
