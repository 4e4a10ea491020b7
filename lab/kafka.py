"""A Kafka broker for tests: one KRaft node in a small JVM, with its data in a folder of the test.

Several can run side by side. A broker can be killed, paused, and restarted with its data on the same ports. A proxy
between the broker and its clients can cut the network.
"""

from __future__ import annotations

import base64
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from string import Template
from types import MappingProxyType

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from .cache import require
from .parts.maven_jars import KAFKA_JARS
from .ports import free_port
from .processes import Process
from .proxy import Proxy

_NODE = Path(__file__).with_name("kafka_node")
_JVM = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.net.preferIPv4Stack=true"]
_CLUSTER = base64.urlsafe_b64encode(b"lab of millrace.").decode().rstrip("=")
_PATIENCE = 180.0
"""Seconds to wait for a broker's start on a busy machine."""

seconds_to_start: list[float] = []
"""Seconds from each start of a broker to its first answer."""


class Broker:
    """A broker that runs from ``start`` to ``stop`` or ``kill``, or to the end of the process that started it.

    Args:
        folder: folder for its data, settings and log (``broker.log``).
        properties: settings in addition to the lab's, such as for logins.
        listeners: protocols of further listeners by name, such as ``{"LOGIN": "SASL_PLAINTEXT"}``; see ``address``.
        host: address that it listens on and advertises to clients.
        java: further arguments of its JVM.
    """

    def __init__(
        self,
        folder: Path,
        properties: Mapping[str, str] = MappingProxyType({}),
        listeners: Mapping[str, str] = MappingProxyType({}),
        host: str = "127.0.0.1",
        java: Sequence[str] = (),
    ) -> None:
        self._java = java
        self.folder = folder
        self._properties = properties
        self._host = host
        self._protocols = {"DIRECT": "PLAINTEXT", "PROXIED": "PLAINTEXT", **listeners, "CONTROLLER": "PLAINTEXT"}
        self._ports = {name: free_port() for name in self._protocols}
        self._proxy_port = free_port()
        self._process: Process | None = None

    @property
    def bootstrap(self) -> str:
        """The address of the broker for clients."""
        return self.address("DIRECT")

    def address(self, listener: str) -> str:
        """Return the address of one of the broker's listeners for clients."""
        return f"{self._host}:{self._ports[listener]}"

    @property
    def pid(self) -> int:
        """The broker's process id."""
        return self._running().pid

    @property
    def log(self) -> str:
        """The broker's output over all its starts."""
        return (self.folder / "broker.log").read_text(encoding="utf-8", errors="replace")

    def start(self) -> None:
        """Start the broker with its data, and wait until all its partitions have a leader.

        Raises:
            MissingError: if Java is not installed, or the jars were not made.
        """
        require("java")
        libraries = KAFKA_JARS.find()
        log_settings = f"-Dlog4j2.configurationFile={_NODE / 'log4j2.properties'}"
        names = self.folder / "hosts"  # Kafka looks up its own name at each login, and there may be no DNS
        names.write_text(f"127.0.0.1 localhost\n{self._host} broker\n", encoding="utf-8")
        java = ["java", *_JVM, *self._java, f"-Djdk.net.hosts.file={names}", log_settings, "-cp", f"{libraries}/*"]
        began = time.monotonic()
        settings = self.folder / "server.properties"
        if not settings.exists():
            settings.write_text(self._settings(), encoding="utf-8")
            self._format([*java, "kafka.tools.StorageTool", "format", f"--cluster-id={_CLUSTER}", "-c", str(settings)])
        self._process = Process([*java, "kafka.Kafka", settings], self.folder / "broker.log")
        self._wait_until_ready(self._process)
        seconds_to_start.append(time.monotonic() - began)

    def stop(self) -> None:
        """Shut the broker down cleanly."""
        self._running().end()

    def kill(self) -> None:
        """Kill the broker."""
        if self._process is not None:
            self._process.kill()

    def restart(self) -> None:
        """Kill the broker if it runs, and start it with its data on the same ports."""
        self.kill()
        self.start()

    def pause(self) -> None:
        """Pause the broker. Its connections stay open and get no answers."""
        self._running().pause()

    def resume(self) -> None:
        """Resume a paused broker."""
        self._running().resume()

    @contextmanager
    def proxied(self) -> Iterator[Proxy]:
        """Yield a proxy to the broker. Clients that start from the proxy's ``bootstrap`` stay behind it."""
        assert self._host == "127.0.0.1", "the proxy listens and leads to loopback only"
        proxy = Proxy(self._proxy_port, self._ports["PROXIED"])
        try:
            yield proxy
        finally:
            proxy.close()

    def _running(self) -> Process:
        assert self._process is not None, "the broker was never started"
        return self._process

    def _settings(self) -> str:
        advertised = self._ports | {"PROXIED": self._proxy_port}
        known = Template((_NODE / "server.properties").read_text(encoding="utf-8")).substitute(
            controller_port=self._ports["CONTROLLER"],
            listeners=",".join(f"{name}://{self._host_of(name)}:{port}" for name, port in self._ports.items()),
            advertised=",".join(
                f"{name}://{self._host}:{port}" for name, port in advertised.items() if name != "CONTROLLER"
            ),
            protocols=",".join(f"{name}:{protocol}" for name, protocol in self._protocols.items()),
            data=self.folder / "data",
        )
        return known + "\n" + "".join(f"{name}={value}\n" for name, value in self._properties.items())

    def _host_of(self, listener: str) -> str:
        """Return the host of a listener. The controller's is only for the node itself."""
        return "127.0.0.1" if listener == "CONTROLLER" else self._host

    def _format(self, command: list[str]) -> None:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, check=False)
        assert done.returncode == 0, f"the broker's folder cannot be made: {done.stdout}{done.stderr}"

    def _wait_until_ready(self, process: Process) -> None:
        deadline = time.monotonic() + _PATIENCE
        while not self._is_listening() or not self._leads_all():
            assert process.status is None, f"the broker ended: {self.log[-3000:]}"
            assert time.monotonic() < deadline, f"the broker does not answer in {_PATIENCE} s: {self.log[-3000:]}"
            time.sleep(0.1)

    def _is_listening(self) -> bool:
        with suppress(OSError), socket.create_connection((self._host, self._ports["DIRECT"]), 1.0):
            return True
        return False

    def _leads_all(self) -> bool:
        """Return whether the broker is registered and every partition has a leader."""
        with suppress(KafkaException):
            known = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 2}).list_topics(timeout=10)
            partitions = [partition for topic in known.topics.values() for partition in topic.partitions.values()]
            return bool(known.brokers) and all(partition.leader in known.brokers for partition in partitions)
        return False


@contextmanager
def running_broker(
    folder: Path,
    properties: Mapping[str, str] = MappingProxyType({}),
    listeners: Mapping[str, str] = MappingProxyType({}),
    host: str = "127.0.0.1",
    java: Sequence[str] = (),
) -> Iterator[Broker]:
    """Run a broker, and kill it at the end, since its data is not needed after that."""
    broker = Broker(folder, properties, listeners, host, java)
    try:
        broker.start()
        yield broker
    finally:
        broker.kill()
