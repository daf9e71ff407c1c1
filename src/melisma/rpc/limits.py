"""How much is borne from a peer, and for how long."""

from dataclasses import dataclass, fields

from melisma.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one peer may ask of this side, and how long its silence is borne."""

    message_bytes: int = 1 << 30  #: memory under way from one peer at a time
    calls: int = 1024  #: calls of one peer that run or wait at a time
    connections: int = 4096  #: peers connected at a time
    ping_s: float = 5.0  #: a sign of life is sent this often
    silence_s: float = 15.0  #: a connection without one for this long is dead
    grace_s: float = 60.0  #: calls wait this long for a lost peer to come back

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not value > 0:
                raise ConfigError(f"{field.name} = {value}: must be more than 0")
        if self.silence_s <= self.ping_s:
            raise ConfigError(
                f"silence_s = {self.silence_s:g}: must be more than ping_s ="
                f" {self.ping_s:g}, or every connection seems dead"
            )
