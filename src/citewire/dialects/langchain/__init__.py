"""LangChain: messages with citation annotations, and their stream."""
