"""Anthropic: the Messages API and its stream."""
