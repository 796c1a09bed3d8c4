"""The compiled core. Callers use the package `tersum`; these are its bare entry points."""

from typing import Any

import numpy as np
import numpy.typing as npt

version: str
wire_version: int
has_xla: bool

def active_isa() -> str: ...
def available_isas() -> list[str]: ...
def read_topology(
    text: str, rate: str, latency_us: float
) -> tuple[
    str, int, list[int], list[str], list[str], list[tuple[int, int, float, float, float]], list[int]
]: ...
def known_codecs() -> list[str]: ...
def register_table(levels: npt.NDArray[np.float32]) -> str: ...
def learn_levels(
    parts: npt.NDArray[np.float64], weights: npt.NDArray[np.float64], count: int
) -> list[float]: ...
def register_kronecker(
    p1: npt.NDArray[np.float32], p2: npt.NDArray[np.float32], diagonal: npt.NDArray[np.float32]
) -> str: ...
def auto_codecs(codec: str) -> list[str]: ...
def codec_info(spec: str, dtype: str, op: str) -> tuple[str, str, int, bool, float]: ...
def codec_wire_bytes(spec: str, count: int, dtype: str) -> int: ...
def codec_sum_bits(spec: str, ranks: int, dtype: str) -> float: ...
def encode_payload(
    spec: str, dtype: str, values: npt.NDArray[np.uint8], rounding: int
) -> bytes: ...
def decode_payload(
    spec: str, dtype: str, payload: bytes, values: npt.NDArray[np.uint8]
) -> None: ...
def codec_speed(spec: str, values: npt.NDArray[np.float32], rounds: int) -> tuple[float, float]: ...
def core_distance_ns(first_cpu: int, second_cpu: int) -> float: ...
def codec_error_bounds(
    spec: str, dtype: str, absmax: npt.NDArray[np.float64], bounds: npt.NDArray[np.float64]
) -> None: ...
def metrics() -> Any: ...
def metrics_text() -> str: ...
def study_plans(
    topology: str,
    rate: str,
    latency_us: float,
    op: str,
    bytes: int,
    dtype: str,
    codec: str,
    cores: int,
    one_machine: bool,
    measure_codec: bool,
) -> tuple[
    str,
    int,
    int,
    float,
    float,
    bool,
    str,
    list[tuple[str, str, float, float, float, float, float, int, str]],
]: ...
def is_host_memory(device_type: int) -> bool: ...
def view_dlpack(capsule: object, writable: bool) -> tuple[npt.NDArray[Any], str]: ...
def open_store(source: object, rank: int, timeout_ms: int) -> Store: ...

class Store:
    def set(self, key: str, value: bytes) -> None: ...
    def wait(self, key: str, timeout_ms: int) -> bytes: ...
    def host(self) -> str: ...

class Work:
    def done(self) -> bool: ...
    def wait(self, timeout_ms: int) -> bool: ...

class CallOptions:
    @property
    def channels(self) -> int: ...
    @channels.setter
    def channels(self, value: int) -> None: ...
    @property
    def attended(self) -> bool: ...
    @attended.setter
    def attended(self, value: bool) -> None: ...
    def __init__(
        self,
        codec: str,
        plan: str,
        timeout_ms: int,
        max_rel_error: float,
        attended: bool,
        site: str = "",
    ) -> None: ...

class Communicator:
    @staticmethod
    def create(
        rank: int,
        size: int,
        store: object,
        name: str,
        timeout_ms: int,
        listen: str,
        port: int,
        transport: str,
        streams: int,
        slice_bytes: int,
        window_bytes: int,
        trace_file: str,
        topology: str,
        tuning_rules: str,
        tune_at_start: bool,
        flatten_every: int,
        rounding_seed: int,
    ) -> Communicator: ...
    def save_flatten(self) -> bytes: ...
    def load_flatten(self, saved: bytes) -> None: ...
    def reset_flatten(self, site: str | None) -> None: ...
    def save_feedback(self) -> bytes: ...
    def load_feedback(self, saved: bytes) -> None: ...
    def reset_feedback(self) -> None: ...
    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def hosts(self) -> list[int]: ...
    def all_reduce_plain(
        self,
        input: object,
        output: object,
        op: str,
        codec: str,
        plan: str,
        timeout_ms: int,
        max_rel_error: float = 0.0,
        site: str = "",
    ) -> bool: ...
    def start_all_reduce(
        self,
        input: npt.NDArray[Any],
        output: npt.NDArray[Any],
        dtype: str,
        op: str,
        how: CallOptions,
        residual: npt.NDArray[Any],
        bias: npt.NDArray[Any],
    ) -> Work: ...
    def start_all_reduce_coalesced(
        self,
        inputs: list[Any],
        outputs: list[Any],
        dtype: str,
        op: str,
        how: CallOptions,
    ) -> Work | None: ...
    def start_reduce_scatter(
        self,
        input: npt.NDArray[Any],
        output: npt.NDArray[Any],
        dtype: str,
        op: str,
        how: CallOptions,
    ) -> Work: ...
    def start_all_gather(
        self,
        input: npt.NDArray[Any],
        output: npt.NDArray[Any],
        dtype: str,
        how: CallOptions,
    ) -> Work: ...
    def start_broadcast(
        self,
        data: npt.NDArray[Any],
        dtype: str,
        root: int,
        how: CallOptions,
    ) -> Work: ...
    def start_move(
        self,
        name: str,
        input: npt.NDArray[Any],
        output: npt.NDArray[Any],
        dtype: str,
        peer: int,
        tag: int,
        how: CallOptions,
    ) -> Work: ...
    def start_barrier(self, how: CallOptions) -> Work: ...
    def tune(self, fresh: bool) -> None: ...
    def link_speed(self) -> tuple[float, float] | None: ...
    def choose(
        self, collective: str, count: int, dtype: str, op: str, how: CallOptions
    ) -> tuple[str, str, float, str, list[tuple[str, str, float]]]: ...
    def split(self, color: int, key: int) -> Communicator | None: ...
    def abort(self, reason: str) -> None: ...
    def close(self) -> None: ...
    def stats(self) -> tuple[int, int, int, int, float]: ...
    def error_bounds(
        self,
        collective: str,
        codec: str,
        plan: str,
        count: int,
        dtype: str,
        absmax: npt.NDArray[np.float64],
        sum_absmax: npt.NDArray[np.float64],
        bounds: npt.NDArray[np.float64],
    ) -> None: ...
