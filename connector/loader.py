"""A consumer rank's loads: one thread that takes every load from its order to its report.

The thread never waits for one peer: it goes round its loads and moves each as far as it can.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import zmq

from connector.endpoint import Endpoints
from connector.load_results import LoadResults
from connector.load_steps import LoadSteps
from connector.loads import IsReady, Load
from connector.logs import log
from connector.metadata import KeepOrder, LoadOrder, ReleaseOrder
from connector.peer_book import PeerBook
from connector.releaser import Releaser
from connector.renewer import Renewer

_SHORTEST_TICK_S = 0.001
_LONGEST_TICK_S = 0.05
_LONGEST_WAIT_S = 3600.0
_TICKS_OF_AGE = 0.02  # a load that has lasted long is looked at more rarely


class Loader:
    """Runs the loads of one rank; the worker's thread gives it orders.

    Args:
        steps: moves a load.
        peers: that loads read from.
        endpoints: that they read through.
        renewer: of leases.
        releaser: tells producers that we are done.
        results: where ``steps`` puts loads that have ended.
        transfer_timeout_s: from the order of a load on.
    """

    def __init__(
        self,
        steps: LoadSteps,
        peers: PeerBook,
        endpoints: Endpoints,
        renewer: Renewer,
        releaser: Releaser,
        results: LoadResults,
        transfer_timeout_s: float,
    ) -> None:
        self._steps = steps
        self._peers = peers
        self._endpoints = endpoints
        self._renewer = renewer
        self._releaser = releaser
        self.results = results
        self._transfer_timeout_s = transfer_timeout_s
        self._orders: queue.Queue[Load | KeepOrder | ReleaseOrder | None] = queue.Queue()
        self._loads: list[Load] = []
        self._trouble = ""
        self._log = log.bind(role="consumer", half="worker")
        self._thread = threading.Thread(target=self._run, daemon=True, name="hybrid-loader")
        self._thread.start()

    # -------------------------------------------------- called by the worker

    def start(self, order: LoadOrder, is_ready: IsReady) -> None:
        """Begin a load once ``is_ready`` says so."""
        now = time.monotonic()
        self._orders.put(Load(order, is_ready, now, now + self._transfer_timeout_s))

    def keep(self, order: KeepOrder) -> None:
        """Renew the lease of a hold until it is released."""
        self._orders.put(order)

    def release(self, order: ReleaseOrder) -> None:
        self._orders.put(order)

    def close(self) -> None:
        self._orders.put(None)
        self._thread.join(timeout=1)

    # ------------------------------------------------------------- the thread

    def _run(self) -> None:
        while self._take_orders():
            now = time.monotonic()
            with self._survives():
                self._peers.receive(now)
            for load in self._loads:
                with self._survives():
                    self._steps.go_on(load, now)
            self._loads = [load for load in self._loads if not load.has_ended]
            with self._survives():
                reading = [load.endpoint for load in self._loads if load.is_reading]
                self._endpoints.close_retired(reading)
            with self._survives():
                self._renewer.go_on(now)
            with self._survives():
                self._releaser.go_on(now)
            with self._survives():
                reading_from = [load.peer for load in self._loads]
                self._peers.close_unused([*reading_from, *self._renewer.connecting])
            with self._survives():
                self._rest()
        for close in (self._steps.close, self._peers.close, self._releaser.close):
            with self._survives():
                close()

    @contextmanager
    def _survives(self) -> Iterator[None]:
        """An error here must not end the thread, without which no load would ever be reported."""
        try:
            yield
        except Exception as error:
            with suppress(Exception):  # the log may be what is broken
                trouble, self._trouble = self._trouble, repr(error)
                if trouble != self._trouble:  # it may come back a thousand times a second
                    self._log.exception("loader-broken", reason=self._trouble)

    def _take_orders(self) -> bool:
        """Take what has been ordered; with nothing to do, wait for it. False at the end."""
        while True:
            try:
                order = self._orders.get(timeout=self._wait_s())
            except queue.Empty:
                return True
            if order is None:
                return False
            if isinstance(order, ReleaseOrder):
                with self._survives():
                    self._releaser.release(order)
            elif isinstance(order, KeepOrder):
                with self._survives():
                    self._releaser.keep(order, time.monotonic())
            else:
                self._loads.append(order)

    def _wait_s(self) -> float | None:
        """How long to wait for an order: until something is due; for ever if nothing will be."""
        with self._survives():
            if self._loads or self._renewer.connecting:
                return 0.0
            now = time.monotonic()
            waits = (self._renewer.seconds_to_next(now), self._releaser.seconds_to_next(now))
            due = [min(wait, _LONGEST_WAIT_S) for wait in waits if wait is not None]
            return min(due, default=None)
        return _LONGEST_TICK_S

    def _rest(self) -> None:
        """Until an answer arrives, or for a moment."""
        if not self._loads and not self._renewer.connecting:
            return
        sockets = self._renewer.sockets
        for load in self._loads:
            sockets += load.peer.talk.sockets if load.peer is not None else []
        youngest = time.monotonic() - max((load.started for load in self._loads), default=0.0)
        tick = min(max(_TICKS_OF_AGE * youngest, _SHORTEST_TICK_S), _LONGEST_TICK_S)
        if not sockets:  # a poller that has none does not wait
            time.sleep(tick)
            return
        poller = zmq.Poller()
        for socket in sockets:
            poller.register(socket, zmq.POLLIN)
        poller.poll(int(tick * 1000))
