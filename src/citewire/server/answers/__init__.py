"""Answers over HTTP: lists, records, checks on demand, proofs."""
