"""Ably's WebSocket and REST protocols, served over our channels."""
