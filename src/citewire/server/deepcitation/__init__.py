"""DeepCitation's REST API, implemented here: its clients work with only the address changed."""
