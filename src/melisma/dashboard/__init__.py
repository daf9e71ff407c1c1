"""Runs in a browser: a page, the JSON behind it, and the wheel for who may steer."""

from melisma.dashboard.site import Dashboard

__all__ = ["Dashboard"]
