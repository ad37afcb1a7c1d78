"""Where a server keeps its secrets and bytes: data folder, vault, blobs, Postgres."""
