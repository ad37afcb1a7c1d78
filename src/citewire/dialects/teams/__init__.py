"""Microsoft Teams: message activities with citations, and their stream."""
