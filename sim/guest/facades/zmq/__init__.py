"""``zmq`` for guests: pyzmq's interface and libzmq's behaviour on the simulated network."""

from sim.guest.facades.zmq.module import make
from sim.guest.facades.zmq.transport import Greeting

__all__ = ["Greeting", "make"]
