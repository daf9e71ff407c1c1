"""The same federated averaging by different engines, each in a module of its own.

A module here has one function, ``run(workload, meter)``: it does the workload in the
engine's own way, ticks the meter after each cycle and returns the final parameters.
"""
