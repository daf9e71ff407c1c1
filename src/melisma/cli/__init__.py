"""The command line: `melisma simulate`, `compare`, `benchmark`, `schemes` and more."""

from melisma.cli.training import app, main

__all__ = ["app", "main"]
