"""Whether the words of a citation are in its source: found, judged and shown."""
