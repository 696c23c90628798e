"""Two engines as processes of the operating system, on localhost, with real clocks and signals.

Each has both halves of the connector as vLLM's factory loads them, and the side channel is ZeroMQ.
Only what the machine has not is stood in for: ``mori.io`` by `shared_mori`, and a GPU's memory by
memory that another process can map. A body of a test is written once; `arms` says what it runs on.
"""
