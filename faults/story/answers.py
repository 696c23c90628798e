"""Wrong answers: whose, from which engine, and from which token on.

Those of requests that the story is not about are told too: a request that only checks the end of a
run, and is answered wrongly, is how a client would notice what the story tells. Of others those
come first whose load was reported as failed, with that report and with the error that was logged.
"""

from __future__ import annotations

from dataclasses import replace

from faults.story.chapter import Chapter
from faults.story.moment import Moment
from faults.story.names import ERRORS, requests_named, said, some_of, whole
from faults.story.subject import Subject
from sim.kernel.log import Record
from sim.oracles.same_output import SameOutput
from sim.request_ids import leg_kind, leg_of, logical_id
from sim.scenario.workloads import EPILOGUE

SAME_OUTPUT = SameOutput.name
_OTHERS_SHOWN = 2


class Answers(Chapter):
    """What the oracle of answers has found, of the story's requests and of a few others."""

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self._answering: dict[str, str] = {}
        self._others: dict[str, Moment] = {}
        self._failed: dict[str, Moment] = {}
        self._errors: dict[str, Moment] = {}
        self._known: dict[str, None] = {}
        self.kinds = {
            "request-arrived": self._arrived,
            "leg-sent": self._leg_sent,
            "receiving-finished": self._receiving_finished,
            "log": self._log,
            "violation": self._violation,
        }

    def moments(self) -> list[Moment]:
        ranked = sorted(self._others.items(), key=lambda item: self._says_little(item[0]))
        told = []
        for request, moment in ranked[:_OTHERS_SHOWN]:
            before = (self._failed.get(request), self._errors.get(request))
            told += [moment, *filter(None, before)]
        if hidden := ranked[_OTHERS_SHOWN:]:
            last = max((moment for _, moment in hidden), key=lambda moment: moment.place)
            names = some_of([request for request, _ in hidden])
            text = f"by now {SAME_OUTPUT} is reported for {names} too"
            told.append(replace(last, text=text))
        return [*self._moments, *told]

    def _says_little(self, request: str) -> tuple[bool, bool]:
        return not request.startswith(EPILOGUE), request not in self._failed

    def _arrived(self, record: Record) -> None:
        self._known[record.fields["request"]] = None

    def _receiving_finished(self, record: Record) -> None:
        request = logical_id(record.fields["request"])
        if record.fields["failed"] and not self.subject.is_about(request):
            leg = leg_of(record.fields["request"])
            text = f"{record.fields['node']} reports the load of {leg} as failed"
            self._failed.setdefault(request, self.moment(record, text, 3))

    def _log(self, record: Record) -> None:
        """The first error that names a request, and none of the story's."""
        message = str(record.fields["message"])
        if record.fields["level"] not in ERRORS or (text := said(message)) is None:
            return
        named = requests_named(message, self._known)
        if not any(map(self.subject.is_about, named)):
            line = f"{record.actor.partition('/')[0]} logs: {whole(text)}"
            for request in named:
                self._errors.setdefault(request, self.moment(record, line, 4))

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
            self._others.setdefault(request, self.moment(record, text, 5))
