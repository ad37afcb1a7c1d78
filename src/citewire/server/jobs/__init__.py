"""Workers that check quotes: a node enqueues questions, any free worker answers, and all nodes see verdicts.

`question` defines the messages, and `queue` transports them with procrastinate. `verifier` enqueues on a
node, through `after_commit_verifier`; `worker` answers in its own process, with the sources of
`worker_sources`.
"""
