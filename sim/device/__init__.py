"""The simulated GPU: a stream on which work is done in order and takes time."""

from sim.device.stream import DeviceEvent, Gate, Stream

__all__ = ["DeviceEvent", "Gate", "Stream"]
