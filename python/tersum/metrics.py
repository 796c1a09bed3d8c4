"""What tersum has done in this process: as a dict, as Prometheus text, and over HTTP."""

from __future__ import annotations

import http.server
import threading
from types import TracebackType
from typing import Any, TypedDict

from tersum import _core
from tersum.errors import InvalidArgumentError, UnavailableError

_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class CallStats(TypedDict):
    """Calls of one collective with one codec, added up over all communicators."""

    collective: str
    codec: str
    calls: int  #: that have ended, well or not
    payload_bytes: int
    wire_bytes_sent: int
    wire_bytes_received: int
    wire_bytes_streamed: int  #: written past the caches, for ranks whose cores are far
    wire_bytes_placed: int  #: of those sent, written where ranks of this host want them
    slices_sent: int
    seconds: float  #: from start to end of each call, summed


class FailureStats(TypedDict):
    """Calls of one collective with one codec that ended with one error."""

    collective: str
    codec: str
    code: str  #: "timeout", "peer_lost", …
    calls: int


class ProcessStats(TypedDict):
    """What :func:`stats` returns."""

    calls: list[CallStats]
    failures: list[FailureStats]
    calls_in_flight: int
    links: int  #: to other processes, now
    links_opened: int
    links_lost: int
    connects_failed: int
    arena_used_bytes: int  #: message memory that somebody still needs
    arena_high_water_bytes: int
    arena_capacity_bytes: int  #: address space, not memory
    backlog_bytes: int  #: queued for peers, not yet taken by the carrier


def stats() -> ProcessStats:
    """The counters of this process over all communicators since it started; any thread."""
    read: ProcessStats = _core.metrics()
    return read


def metrics_text() -> str:
    """The counters in Prometheus's text format 0.0.4; any thread."""
    return _core.metrics_text()


class MetricsServer:
    """Serves :func:`metrics_text` at ``/metrics`` until :meth:`close`; a context manager."""

    def __init__(self, port: int, host: str) -> None:
        try:
            self._server = http.server.ThreadingHTTPServer((host, port), _Handler)
        except OSError as error:
            raise UnavailableError(
                f"no metrics at {host}:{port}: {error.strerror or error}; pass another port, or 0 "
                "for any free one"
            ) from error
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="tersum-metrics", daemon=True
        )
        self._thread.start()

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Stops serving and closes the port. Idempotent."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> MetricsServer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def serve_metrics(port: int = 0, host: str = "127.0.0.1") -> MetricsServer:
    """Serves the counters at ``http://host:port/metrics`` from a thread of this process.

    :param port: 0 takes a free one; ``.port`` of the result says which.
    :param host: loopback unless named; ``""`` listens on every interface. There is no
        authentication: whoever reaches the port can read.
    """
    if not 0 <= port <= 65535:
        raise InvalidArgumentError(f"port must be 0 (any free one) to 65535, got {port}")
    return MetricsServer(port, host)


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path.split("?")[0] not in ("/", "/metrics"):
            self.send_error(404, "the counters are at /metrics")
            return
        body = metrics_text().encode()
        self.send_response(200)
        self.send_header("Content-Type", _CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """The library does not print."""
