"""Citations in an AG-UI stream: found, checked, and written into shared state."""
