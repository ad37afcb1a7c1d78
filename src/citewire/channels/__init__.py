"""The durable log, where it is kept, and the channels of messages and annotations that are kept in it."""
