"""Comparing schemes: sweeps over processes, trials, the comparison and its report."""
