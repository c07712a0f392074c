"""A proxy before a server of any protocol that loses answers: the connection ends in their place."""

import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

_PIECE: Final = 1 << 16


class CuttingProxy:
    """A proxy on the loopback interface. While `cutting` is above 0, each answer counts it down, and is lost.

    The request has reached the server by then.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self._lock = threading.Lock()
        self.cutting = 0
        self.cut = 0
        """Answers that were lost."""
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._port))
                with self._lock:
                    self._open += [client, server]
                threading.Thread(target=self._pass, args=(client, server, False), daemon=True).start()
                threading.Thread(target=self._pass, args=(server, client, True), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, answers: bool) -> None:
        with suppress(OSError):
            while data := source.recv(_PIECE):
                if answers and self._loses():
                    break
                target.sendall(data)
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _loses(self) -> bool:
        with self._lock:
            if self.cutting <= 0:
                return False
            self.cutting -= 1
            self.cut += 1
            return True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in (self._listener, *self._open):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
