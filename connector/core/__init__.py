"""What the connector decides: pure functions and small state tables, the standard library only.

Nothing here does I/O, reads a clock (``now`` is an argument where time matters) or imports vLLM.
"""
