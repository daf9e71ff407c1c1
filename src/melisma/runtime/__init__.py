"""The running system: the orchestrator's cycle, the fleets, records and runs."""
