"""Schemes side by side: sweeps over processes, trials, comparison and its report."""
