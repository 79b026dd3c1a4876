"""The link to the controller itself (ansible_connection: local): the same commands in a subprocess of this one."""

from __future__ import annotations

from wattherd.link import process, transport


class LocalLink:
    """Implements transport.Link. Its control and bulk ways are one."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._channels: list[process.ProcessChannel] = []

    def run(self, command: str) -> transport.Channel:
        channel = process.ProcessChannel(["/bin/sh", "-c", command], self._name)
        self._channels.append(channel)
        return channel

    def bulk(self, command: str) -> transport.Channel:
        return self.run(command)

    def close(self) -> None:
        for channel in self._channels:
            channel.close()
