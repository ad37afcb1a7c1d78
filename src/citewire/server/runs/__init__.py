"""Start, follow, resume and read back runs and threads."""
