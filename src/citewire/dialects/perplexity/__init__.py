"""Perplexity: Sonar completions with a list of sources, and their stream."""
