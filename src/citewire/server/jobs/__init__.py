"""Quotes that are checked by workers: a node asks, whichever worker is free looks, and all nodes may know.

`question` is what travels, `queue` the way, on procrastinate; `verifier` asks on a node, once what it
asks about is `committed`; `worker` answers in a process of its own, with the sources of `shelf`.
"""
