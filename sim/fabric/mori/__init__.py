"""``mori.io`` 1.2.4 as its callers see it, on the simulated fabric (see ``sim.fabric.mori_io``)."""
