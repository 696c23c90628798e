"""The vLLM KV connector of this project: production code, not simulation.

It holds nothing yet. Its core will decide (classification, payload, pairing, leases, the
transfer's state table) as pure functions that import the standard library only; thin edges will
do the I/O. It never imports ``sim``, ``faults`` or the tests, nor simpy or greenlet, so that it
installs into a serving container as it is. ``import connector`` must stay free of vLLM.
"""
