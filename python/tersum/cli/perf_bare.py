"""``tersum perf --compare bare``: what the wire itself takes for a codec's bytes.

Two ranks stream at each other, over one plain TCP connection with the host's defaults, as many
bytes as a call of the codec sends, all at once and both ways: no codec, no plan, no second step
that waits for the first. What a call takes beyond that is what coding, steps and bookkeeping cost
on that wire and this machine.
"""

from __future__ import annotations

import secrets
import select
import socket
from collections.abc import Callable

import numpy as np

from tersum.cli.command_error import CommandError
from tersum.cli.perf_contender import Contender
from tersum.cli.perf_data import Values
from tersum.cli.perf_options import BARE, PerfOptions
from tersum.codecs import codec_wire_bytes, is_auto
from tersum.communicator import Communicator

# Of one send or recv: stays in L2, as the slices of a collective do.
_PIECE_BYTES = 256 << 10


class BareStream:
    """One end of a connection between two ranks; calls must be made on both alike. One thread at a
    time. Closes with the process."""

    def __init__(self, connection: socket.socket, timeout_ms: int) -> None:
        """``timeout_ms``: how long the other end may stand still."""
        self.bytes_sent = 0
        self._timeout_ms = timeout_ms
        self._out = memoryview(bytes(_PIECE_BYTES))
        self._in = memoryview(bytearray(_PIECE_BYTES))
        self._socket = connection
        self._socket.setblocking(False)

    def exchange(self, size: int) -> None:
        """Sends ``size`` bytes and receives as many; CommandError if the peer stands still or is
        gone."""
        try:
            self._exchange(size)
        except OSError as error:
            raise CommandError(f"the bare stream ended: {error}") from error
        self.bytes_sent += size

    def _exchange(self, size: int) -> None:
        to_send = to_receive = size
        poller = select.poll()
        while to_send or to_receive:
            sent = self._send(to_send)
            received = self._receive(to_receive)
            to_send -= sent
            to_receive -= received
            if sent or received:
                continue
            wanted = (select.POLLOUT if to_send else 0) | (select.POLLIN if to_receive else 0)
            poller.register(self._socket, wanted)
            if not poller.poll(self._timeout_ms):
                raise TimeoutError(f"its other end stood still for {self._timeout_ms} ms")

    def _send(self, most: int) -> int:
        if most == 0:
            return 0
        try:
            return self._socket.send(self._out[:most])
        except BlockingIOError:
            return 0

    def _receive(self, most: int) -> int:
        if most == 0:
            return 0
        try:
            received = self._socket.recv_into(self._in[:most])
        except BlockingIOError:
            return 0
        if received == 0:
            raise ConnectionError("its other end is gone")
        return received


def _connect(group: Communicator, address: str, timeout_s: float) -> socket.socket:
    """Rank 0 takes the connection that shows the number it has told the group."""
    told = np.zeros(2, np.int64)  # port, number
    if group.rank != 0:
        group.broadcast(told, 0, out=told)
        joined = socket.create_connection((address, int(told[0])), timeout_s)
        joined.sendall(told[1].tobytes())
        return joined
    with socket.create_server((address, 0)) as listener:
        listener.settimeout(timeout_s)
        told[:] = listener.getsockname()[1], secrets.randbits(63)
        group.broadcast(told, 0, out=told)
        while True:
            joined = listener.accept()[0]
            joined.settimeout(timeout_s)
            if joined.recv(told[1].nbytes, socket.MSG_WAITALL) == told[1].tobytes():
                return joined
            joined.close()


def bare_contenders(group: Communicator, options: PerfOptions, address: str) -> list[Contender]:
    """One for each codec that is named; ``address`` is rank 0's."""
    try:
        connection = _connect(group, address, options.timeout_ms / 1000)
    except OSError as error:
        raise CommandError(f"the bare stream cannot begin: {error}") from error
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    stream = BareStream(connection, options.timeout_ms)

    def exchange(codec: str) -> Callable[[Values, Values], Callable[[], object]]:
        def prepare(x: Values, _: Values) -> Callable[[], object]:
            size = codec_wire_bytes(codec, x.size, options.dtype)
            return lambda: stream.exchange(size)

        return prepare

    codecs = dict.fromkeys(codec for codec in options.codecs if not is_auto(codec))
    return [
        Contender(
            BARE,
            codec,
            "stream",
            "tcp",
            exchange(codec),
            lambda: stream.bytes_sent,
            sums=False,
        )
        for codec in codecs
    ]
