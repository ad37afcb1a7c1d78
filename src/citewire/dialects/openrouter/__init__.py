"""OpenRouter: chat completions with annotations, and their stream."""
