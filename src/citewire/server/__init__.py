"""The server: AG-UI runs, threads, sources, checks and proofs over HTTP."""
