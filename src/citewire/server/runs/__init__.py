"""Runs and threads: started, followed, resumed, read back."""
