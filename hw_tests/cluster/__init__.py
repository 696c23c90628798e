"""The hardware suite on two hosts, over ssh, inside a Slurm allocation, or by hand.

``python -m hw_tests.cluster`` starts a `supervisor` on either host, and under it an `agent`, which
starts the engines there. The tests run where the command was given and talk to both agents.
"""
