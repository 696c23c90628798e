"""The simulated GPU: streams on which work is done in order and takes time."""

from sim.device.side_stream import SideStream, chosen, chosen_stream
from sim.device.stream import DeviceEvent, Gate, Stream

__all__ = ["DeviceEvent", "Gate", "SideStream", "Stream", "chosen", "chosen_stream"]
