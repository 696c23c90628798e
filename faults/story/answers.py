"""Wrong answers: whose, from which engine, and from which token on.

Those of requests that the story is not about are told too: a request that only checks the end of a
run, and is answered wrongly, is how a client would notice what the story tells.
"""

from __future__ import annotations

from faults.story.chapter import Chapter
from faults.story.moment import Moment
from faults.story.names import some_of
from faults.story.subject import Subject
from sim.kernel.log import Record
from sim.oracles.same_output import SameOutput
from sim.request_ids import leg_kind
from sim.scenario.workloads import EPILOGUE

SAME_OUTPUT = SameOutput.name
_OTHERS_SHOWN = 2


class Answers(Chapter):
    """What the oracle of answers has found, of the story's requests and of a few others."""

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self._answering: dict[str, str] = {}
        self._others: dict[str, Moment] = {}
        self.kinds = {"leg-sent": self._leg_sent, "violation": self._violation}

    def moments(self) -> list[Moment]:
        ranked = sorted(self._others.items(), key=lambda item: not item[0].startswith(EPILOGUE))
        told = [moment for _, moment in ranked[:_OTHERS_SHOWN]]
        if hidden := ranked[_OTHERS_SHOWN:]:
            last_ns = max(moment.time_ns for _, moment in hidden)
            names = some_of([request for request, _ in hidden])
            told.append(Moment(last_ns, f"by now {SAME_OUTPUT} is reported for {names} too", 5))
        return [*self._moments, *told]

    def _leg_sent(self, record: Record) -> None:
        """The last engine that was asked for more than a prefill."""
        if leg_kind(record.fields["leg"]) != "p":
            self._answering[record.fields["request"]] = record.fields["node"]

    def _violation(self, record: Record) -> None:
        request = record.fields["request"]
        if record.fields["oracle"] != SAME_OUTPUT:
            return
        node = self._answering.get(request)
        where = f", which {node} answered" if node else ""
        difference = str(record.fields["detail"]).rpartition("; ")[2]
        text = f"{SAME_OUTPUT} is reported for {request}{where}: {difference}"
        if self.subject.is_about(request):
            self.subject.found[SAME_OUTPUT] = None
            self.add(record, text, 6)
        else:
            self._others.setdefault(request, Moment(record.time_ns, text, 5))
