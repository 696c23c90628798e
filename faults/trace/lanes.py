"""Where events are shown: numbers for processes and threads, given out as they are met."""

from __future__ import annotations

from faults.trace.events import Named

Lane = tuple[int, int]


class Lanes:
    """One process an engine, one a network card; router, faults and network have theirs."""

    def __init__(self) -> None:
        self._processes: dict[str, int] = {}
        self._threads: dict[tuple[str, str], int] = {}

    def of(self, process: str, thread: str) -> Lane:
        """The lane of that name."""
        pid = self._processes.setdefault(process, len(self._processes) + 1)
        tid = self._threads.setdefault((process, thread), len(self._threads) + 1)
        return pid, tid

    def of_actor(self, actor: str) -> Lane:
        """The lane of whoever wrote a record: ``node/process/task``, or a part of the testbed."""
        node, slash, task = actor.partition("/")
        return self.of(f"engine {node}", task) if slash else self.of(actor, actor)

    def of_rank(self, node: str, rank: int) -> Lane:
        return self.of(f"engine {node}", f"rank {rank}")

    def of_card(self, node: str) -> Lane:
        return self.of(f"network card of {node}", "transfers")

    def names(self) -> list[Named]:
        """The names of all lanes that were used."""
        processes = [
            Named(name="process_name", pid=pid, args={"name": name})
            for name, pid in self._processes.items()
        ]
        threads = [
            Named(name="thread_name", pid=self._processes[process], tid=tid, args={"name": thread})
            for (process, thread), tid in self._threads.items()
        ]
        return [*processes, *threads]
