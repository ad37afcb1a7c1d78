"""Convert the citation objects of agent frameworks to an `Answer` and back.

Each module has `read` and `write`, and needs the framework it is named after.
"""
