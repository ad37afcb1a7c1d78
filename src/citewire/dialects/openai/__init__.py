"""OpenAI: Responses, Chat Completions, Assistants and ChatGPT, and their streams."""
