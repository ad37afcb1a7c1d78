"""Cohere: the Chat API and its stream."""
