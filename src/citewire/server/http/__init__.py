"""Building blocks of the REST API: operations, event streams, pagination."""
