"""Tables, reports and pages of a run, made from its records alone; no torch.

Names are imported on first use, so that reading rows does not load the page.
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
