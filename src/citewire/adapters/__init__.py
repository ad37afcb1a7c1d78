"""The citation objects of agent frameworks, from an `Answer` and back.

Each module has `read` and `write`, and needs the framework that it is named after.
"""
