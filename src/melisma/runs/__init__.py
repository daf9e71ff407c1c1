"""What became of a run: rows, pictures and one page, from its records alone."""

from melisma.runs.accounts import Account, account, read
from melisma.runs.page import PAGE, ROWS, write

__all__ = ["PAGE", "ROWS", "Account", "account", "read", "write"]
