"""Learners that can be given work, simulated and live, behind narrow protocols."""
