"""The web pages: chat, console, sign-in."""
