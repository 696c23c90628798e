"""Checks of ``mori.io`` and of transfers that are written once and run on several arms.

``pytest hw_tests --arm sim`` runs on the simulated library, ``--arm mori-cpu`` on the released one
without a GPU. What is here may import ``connector``, and from ``sim`` the byte contents, the
oracles and the scenario types; never ``faults``, because nothing is injected on hardware.
"""
