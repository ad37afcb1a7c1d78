"""HTTP operations on answers: lists, records, on-demand checks and proofs."""
