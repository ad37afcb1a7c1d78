"""Azure OpenAI On Your Data: completions with a context, and their stream."""
