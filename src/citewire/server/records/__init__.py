"""The server's side of the audit log: signed heads and keys."""
