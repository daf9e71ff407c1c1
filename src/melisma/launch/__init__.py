"""From a job to a run under way: simulated, served, local processes, testbed."""
