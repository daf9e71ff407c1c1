"""Limits on the memory, calls and silence of peers."""

from dataclasses import dataclass, fields

from melisma.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a peer may use of this process, and when it counts as lost."""

    message_bytes: int = 1 << 30  #: buffers of one peer in transfer at a time
    body_bytes: int = 1 << 24  #: of a value without its arrays
    #: Values of all peers that are half received; None: a quarter of the memory.
    total_bytes: int | None = None
    calls: int = 1024  #: calls of one peer at a time
    connections: int = 4096  #: peers at a time
    ping_s: float = 5.0  #: interval between pings
    silence_s: float = 15.0  #: a connection that received nothing for so long is closed
    stall_s: float = 60.0  #: a session that confirms nothing for so long is ended
    grace_s: float = 60.0  #: calls wait so long for a lost peer to reconnect

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and not value > 0:
                raise ConfigError(f"{field.name} = {value}: must be more than 0")
        if self.silence_s <= self.ping_s:
            raise ConfigError(
                f"silence_s = {self.silence_s:g}: must be more than ping_s ="
                f" {self.ping_s:g}, or every connection would time out"
            )
