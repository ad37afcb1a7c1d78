"""The record as a person asks for it: who cited what, when, from which source, and what became of it.

`thread` folds the log of a thread, `catalog` that of the sources, `which` says what is asked for, and
`record` goes through a store. `chain` writes all of it down so that `checking` can tell whether it was
changed; `sheet` and `page` are for people.
"""
