"""The server's part of the audit record: signed heads and keys."""
