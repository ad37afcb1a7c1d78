"""The audit record for people: who cited what, when, from which source, with which verdict and reviews.

`thread_fold` folds the log of a thread, `sources_fold` that of the sources, `audit_filter` is the query, and
`record` walks a store. `jsonl_export` writes everything so that `export_check` can detect changes;
`csv_export` and `html_export` are for people.
"""
