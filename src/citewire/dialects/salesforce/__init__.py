"""Salesforce: messaging and the Agent API."""
