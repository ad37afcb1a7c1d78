"""Store, read, search and watch the sources of a server."""
