"""Storage of secrets and bytes: data folder, vault, blobs, Postgres."""
