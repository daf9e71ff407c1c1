"""The parts of ``csa_options``: windows of steps, their search, and coverage."""
