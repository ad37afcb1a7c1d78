"""The pages for people: the chat, the console, sign-in."""
