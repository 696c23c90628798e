"""Virtual time: the clock, the tasks that live on it, chance, and the record of a run."""

from sim.kernel.kernel import Kernel
from sim.kernel.log import EventLog
from sim.kernel.mailbox import Mailbox
from sim.kernel.polling import PollingLoop
from sim.kernel.process import Node, Process, ProcessState
from sim.kernel.seed import Seed
from sim.kernel.task import Task, TaskFailure

__all__ = [
    "EventLog",
    "Kernel",
    "Mailbox",
    "Node",
    "PollingLoop",
    "Process",
    "ProcessState",
    "Seed",
    "Task",
    "TaskFailure",
]
