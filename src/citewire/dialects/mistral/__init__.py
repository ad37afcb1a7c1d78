"""Mistral: messages with reference chunks, and their stream."""
