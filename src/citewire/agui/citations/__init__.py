"""Finds the citations in an AG-UI stream, has them checked, and writes them into shared state."""
