"""Accept connections up to a bound, so that open connections are served even if a peer opens as many as it can.

uvicorn leaves this to the event loop, which accepts until the process has no descriptors left. Then the store and
uploads cannot open files either. A connection over the bound is closed at once, before its TLS handshake.
"""

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable

import structlog

log = structlog.get_logger()

_BATCH = 64
"""Connections that are accepted before other work of the event loop gets its turn."""
_PAUSE_S = 0.1
"""Pause after the system refused a descriptor, because the listening socket stays readable."""
_HANDSHAKE_S_MAX = 10.0
_WARN_EVERY_S = 10.0
_NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Acceptor:
    """Accepts connections on one listening socket. It has the methods of `asyncio.Server` that uvicorn uses."""

    def __init__(
        self,
        listening: socket.socket,
        make_protocol: Callable[[], asyncio.Protocol],
        encryption: ssl.SSLContext | None,
        descriptor_max: int,
    ) -> None:
        self._listening, self._make_protocol, self._encryption = listening, make_protocol, encryption
        self._descriptor_max = descriptor_max
        self._loop = asyncio.get_running_loop()
        self._starting: set[asyncio.Task[None]] = set()
        self._resume: asyncio.TimerHandle | None = None
        self._refused, self._warned_s = 0, float("-inf")

    def start(self, backlog: int) -> None:
        self._listening.setblocking(False)
        self._listening.listen(backlog)
        self._loop.add_reader(self._listening.fileno(), self._accept)

    def close(self) -> None:
        self._loop.remove_reader(self._listening.fileno())
        if self._resume is not None:
            self._resume.cancel()
        for task in self._starting:
            task.cancel()

    async def wait_closed(self) -> None:
        await asyncio.gather(*self._starting, return_exceptions=True)

    def _accept(self) -> None:
        for _ in range(_BATCH):
            try:
                connection, _ = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _NO_DESCRIPTORS:
                    raise
                self._pause()
                return
            # The system gives each connection the lowest free number, so this one shows how many are in use.
            if connection.fileno() >= self._descriptor_max:
                connection.close()
                self._warn()
                continue
            self._start(connection)

    def _start(self, connection: socket.socket) -> None:
        task = self._loop.create_task(self._serve(connection))
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)

    async def _serve(self, connection: socket.socket) -> None:
        """Give the connection to a protocol. With TLS this lasts until the end of the handshake."""
        connection.setblocking(False)
        timeout_s = _HANDSHAKE_S_MAX if self._encryption else None
        try:
            await self._loop.connect_accepted_socket(
                self._make_protocol, connection, ssl=self._encryption, ssl_handshake_timeout=timeout_s
            )
        except OSError as error:  # the peer has gone, or did not finish its handshake
            log.debug("connection.not_started", error=str(error))
            connection.close()

    def _pause(self) -> None:
        self._warn()
        self._loop.remove_reader(self._listening.fileno())
        self._resume = self._loop.call_later(_PAUSE_S, self._continue)

    def _continue(self) -> None:
        self._resume = None
        self._loop.add_reader(self._listening.fileno(), self._accept)

    def _warn(self) -> None:
        self._refused += 1
        if self._loop.time() - self._warned_s >= _WARN_EVERY_S:
            self._warned_s = self._loop.time()
            log.warning("server.connections_refused", refused=self._refused, descriptors_max=self._descriptor_max)
