"""The log of a thread: its rows, what they mean, and the folds over them."""
