"""The wire of Ably's clients: their WebSocket protocol and their REST calls, over our channels."""
