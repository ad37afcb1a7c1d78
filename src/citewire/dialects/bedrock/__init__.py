"""Amazon Bedrock: Converse and RetrieveAndGenerate, and their streams."""
