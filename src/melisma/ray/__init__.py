"""Ray: sweeps and training on a trusted cluster.

Only this room imports ray, an extra: ``pip install 'melisma[ray]'``.
"""
