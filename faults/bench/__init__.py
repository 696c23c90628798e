"""How fast the testbed is, on fixed scenarios: what is measured, how, and the table of it.

Nothing here judges a run, and no run depends on a figure from here.
"""
