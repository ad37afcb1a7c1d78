"""Prometheus metrics. Labels only take values from small sets."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from citewire.server.ops.logs import AccessRecord

__all__ = ["CONTENT_TYPE", "Metrics"]

CONTENT_TYPE = CONTENT_TYPE_LATEST
"""The media type of `Metrics.render`."""

_METHODS = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "WEBSOCKET"})
# In seconds. A stream lasts as long as its run; an append is one sync to disk.
_REQUEST = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_APPEND = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5)


class Metrics:
    """The metrics of one server. Each is updated where its event happens."""

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        ProcessCollector(registry=registry)

        def counter(name: str, said: str, *labels: str) -> Counter:
            return Counter(f"citewire_{name}", said, labels, registry=registry)

        def gauge(name: str, said: str, *labels: str) -> Gauge:
            return Gauge(f"citewire_{name}", said, labels, registry=registry)

        def histogram(name: str, said: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
            return Histogram(f"citewire_{name}", said, labels, buckets=buckets, registry=registry)

        self._requests = counter("requests_total", "Requests answered.", "method", "route", "status")
        self._seconds = histogram("request_seconds", "How long requests took.", _REQUEST, "method", "route")
        self.streams = gauge("streams_open", "Event streams that are open.")
        self.runs = gauge("runs_active", "Runs that are going on.")
        self.runs_ended = counter("runs_total", "Runs that have ended.", "outcome")
        differing = "Runs whose client posted other answers or verdicts than the log has."
        self.ignored = counter("posted_ignored_total", differing, "what")
        self.verdicts = counter("verdicts_total", "Verdicts reached.", "status")
        self._appends = counter("appends_total", "Rows appended to the log.")
        self._append_seconds = histogram("append_seconds", "How long an append took.", _APPEND)
        self.sources = gauge("sources", "Sources that are known.", "state")
        self._jobs = gauge("jobs_waiting", "Jobs that no worker has taken yet.")
        self._workers = gauge("workers_alive", "Workers that live.")

    def request(self, access: AccessRecord) -> None:
        """Count a request. Requests that match no route are counted under the empty route."""
        method = access.method if access.method in _METHODS else "OTHER"
        route = access.route or ""
        self._requests.labels(method, route, str(access.status)).inc()
        self._seconds.labels(method, route).observe(access.seconds)

    def append(self, rows: int, seconds: float) -> None:
        """Count an append to the log."""
        self._appends.inc(rows)
        self._append_seconds.observe(seconds)

    def backlog(self, jobs: int, workers: int) -> None:
        """Set the number of waiting jobs and live workers, over all nodes."""
        self._jobs.set(jobs)
        self._workers.set(workers)

    def render(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self._registry)
