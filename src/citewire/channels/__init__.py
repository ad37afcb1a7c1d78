"""The durable log, its storage backends, and the channels of messages and annotations built on it."""
