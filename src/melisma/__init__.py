"""Melisma: many unlike devices train one model by a deadline."""

__version__ = "0.1.0"
