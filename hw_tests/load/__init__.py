"""Load from a trace through real servers, with a producer that is killed, stopped and restarted.

``python -m hw_tests.load --help``. Beside the prefill and the decode engine behind the router runs
a colocated control of the same model, which is asked the same.
"""
