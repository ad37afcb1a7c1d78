"""Readers of provider streams, one per dialect that streams.

Each module has the `NAME` of its dialect, `detect(payload)` for a list of events, and `Stream`.
"""
