"""DeepCitation's REST contract, answered here: its clients work with only the address changed."""
