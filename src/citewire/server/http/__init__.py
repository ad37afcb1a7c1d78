"""What the REST API is made of: operations, event streams, pagination."""
