"""xAI: the Responses API with xAI's annotations, and its stream."""
