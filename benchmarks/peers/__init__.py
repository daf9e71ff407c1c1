"""The same work done by ours and by others, each in a module of its own.

An engine of ``bench_simulation.py`` has one function, ``run(workload, meter)``: it does
the workload in the engine's own way, ticks the meter after each cycle and returns the
final parameters.

A module ``rpc_…`` of ``bench_rpc.py`` has two: ``serve(tell)``, which tells the address
where it answers and does so until its process is ended, and ``connect(address)``, a
context with a ``Client`` or an ``AsyncClient`` of ``rpc_measure``.
"""
