"""What became of a run: rows and one page, from its records alone; no torch.

The page is imported when it is asked for: who only reads rows does without it.
"""

from typing import TYPE_CHECKING

from melisma.lazy import offer

if TYPE_CHECKING:
    from melisma.views import fog, plots
    from melisma.views.accounts import Account, account, read
    from melisma.views.page import PAGE, ROWS, write
    from melisma.views.tasks import Service, service

__all__ = [
    "PAGE",
    "ROWS",
    "Account",
    "Service",
    "account",
    "fog",
    "plots",
    "read",
    "service",
    "write",
]

offer(
    globals(),
    accounts="Account account read",
    page="PAGE ROWS write",
    tasks="Service service",
)
