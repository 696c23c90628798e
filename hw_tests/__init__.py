"""Transfer scenarios and oracles on real ``mori.io`` and AMD GPUs.

It holds nothing yet. It will import ``connector``, and from ``sim`` the byte contents, the
oracles and the scenario types; never ``faults``, because nothing is injected on hardware.
"""
