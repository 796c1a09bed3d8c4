"""tersum: quantized collectives for distributed machine learning.

with tersum.Communicator(rank, size, store="tcp://127.0.0.1:29500") as group:
    total = group.all_reduce(gradients)            # int8 on the wire, same bits on every rank
    exact = group.all_reduce(losses, codec="exact")
"""

import os

from tersum import _core
from tersum._arrays import DTYPES
from tersum._capture_files import Capture, CaptureSummary
from tersum._core import open_store
from tersum._eager_capture import capture
from tersum._kronecker_transforms import register_kronecker, write_kronecker
from tersum._learned_state import LinkSpeed, PathChoice, PathOption
from tersum._level_tables import learn_table, register_table
from tersum.codecs import (
    CodecInfo,
    CodecSpeed,
    auto_codecs,
    codec_error_bound,
    codec_info,
    codec_speed,
    codec_sum_bits,
    codec_wire_bytes,
    decode_payload,
    encode_payload,
    known_codecs,
)
from tersum.communicator import Communicator, CommunicatorStats
from tersum.errors import (
    AbortedError,
    ClosedError,
    DisagreementError,
    InternalError,
    InvalidArgumentError,
    PeerLostError,
    ProtocolError,
    StatusCode,
    SystemCallError,
    TersumError,
    TimeoutError,
    UnavailableError,
    UnsupportedError,
    VersionMismatchError,
)
from tersum.metrics import MetricsServer, ProcessStats, metrics_text, serve_metrics, stats
from tersum.store import MemoryStore, Store, TorchStore
from tersum.topologies import TopologyLink, TopologyShape, read_topology
from tersum.work import Work

__version__: str = _core.version
wire_version: int = _core.wire_version


def isa() -> str:
    """The instruction set that the codecs use here; ``TERSUM_FORCE_ISA`` picks one.

    InvalidArgumentError, naming those there are, if that names none of them.
    """
    if os.environ.get("TERSUM_FORCE_ISA"):
        # The variable takes effect when the process makes its first communicator.
        with Communicator(0, 1):
            return _core.active_isa()
    return _core.active_isa()


def available_isas() -> list[str]:
    """All instruction sets that the codecs could use here, best first; all give the same bits."""
    return _core.available_isas()


__all__ = [
    "DTYPES",
    "AbortedError",
    "Capture",
    "CaptureSummary",
    "ClosedError",
    "CodecInfo",
    "CodecSpeed",
    "Communicator",
    "CommunicatorStats",
    "DisagreementError",
    "InternalError",
    "InvalidArgumentError",
    "LinkSpeed",
    "MemoryStore",
    "MetricsServer",
    "PathChoice",
    "PathOption",
    "PeerLostError",
    "ProcessStats",
    "ProtocolError",
    "StatusCode",
    "Store",
    "SystemCallError",
    "TersumError",
    "TimeoutError",
    "TopologyLink",
    "TopologyShape",
    "TorchStore",
    "UnavailableError",
    "UnsupportedError",
    "VersionMismatchError",
    "Work",
    "__version__",
    "auto_codecs",
    "available_isas",
    "capture",
    "codec_error_bound",
    "codec_info",
    "codec_speed",
    "codec_sum_bits",
    "codec_wire_bytes",
    "decode_payload",
    "encode_payload",
    "isa",
    "known_codecs",
    "learn_table",
    "metrics_text",
    "open_store",
    "read_topology",
    "register_kronecker",
    "register_table",
    "serve_metrics",
    "stats",
    "wire_version",
    "write_kronecker",
]
