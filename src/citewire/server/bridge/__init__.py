"""The bridge between the logs of threads and their channels."""
