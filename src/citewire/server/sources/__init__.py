"""The sources of a server: stored, read, searched, watched."""
