"""Limits on the memory, calls and silence of a peer."""

from dataclasses import dataclass, fields

from melisma.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a peer may use of this process, and when it counts as lost."""

    message_bytes: int = 1 << 30  #: buffers of one peer in transfer at a time
    calls: int = 1024  #: calls of one peer at a time
    connections: int = 4096  #: peers at a time
    ping_s: float = 5.0  #: interval between pings
    silence_s: float = 15.0  #: a connection that received nothing for so long is closed
    grace_s: float = 60.0  #: calls wait so long for a lost peer to reconnect

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not value > 0:
                raise ConfigError(f"{field.name} = {value}: must be more than 0")
        if self.silence_s <= self.ping_s:
            raise ConfigError(
                f"silence_s = {self.silence_s:g}: must be more than ping_s ="
                f" {self.ping_s:g}, or every connection would time out"
            )
