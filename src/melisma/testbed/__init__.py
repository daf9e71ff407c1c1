"""Devices emulated on one machine: network namespaces, rate limits, CPU quotas."""

from melisma.testbed.devices import DEVICES, Device
from melisma.testbed.testbed import Place, Testbed, missing

__all__ = ["DEVICES", "Device", "Place", "Testbed", "missing"]
