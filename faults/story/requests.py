"""The requests' way: arrival, legs, waiting between them, loads, releases, and the end."""

from __future__ import annotations

from dataclasses import replace

from faults.plural import counted
from faults.story.chapter import Chapter
from faults.story.moment import Moment
from faults.story.names import pass_in_words
from faults.story.subject import Subject
from faults.wording import short_time
from sim.kernel.log import Record
from sim.oracles.base import NORMAL_OUTCOMES
from sim.request_ids import leg_kind, leg_of
from sim.units import MS

_LONG_HAND_OFF_NS = 100 * MS


class Requests(Chapter):
    """Everything that the router and the engines did with the requests by name."""

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self._passes: dict[tuple[str, str], None] = {}
        self._prefilled: dict[str, Moment] = {}
        self.kinds = {
            "request-arrived": self._arrived,
            "leg-sent": self._leg_sent,
            "leg-finished": self._leg_finished,
            "hand-off-held": self._hand_off_held,
            "request-retried": self._retried,
            "forward-began": self._forward_began,
            "receiving-finished": self._receiving_finished,
            "sending-finished": self._sending_finished,
            "request-ended": self._request_ended,
        }

    def moments(self) -> list[Moment]:
        return [*self._moments, *self._prefilled.values()]

    def _arrived(self, record: Record) -> None:
        fields = record.fields
        if self.subject.is_about(fields["request"]):
            lengths = f"{counted(fields['prompt_tokens'], 'token')} in, {fields['max_tokens']} out"
            self.add(record, f"{fields['request']} arrives ({lengths})", 3)

    def _leg_sent(self, record: Record) -> None:
        """With how long the hand-off took, if that was more than the router's own time."""
        fields = record.fields
        if not self.subject.is_about(fields["request"]):
            return
        text, weight = f"the router sends {fields['leg']} to {fields['node']}", 1
        prefilled = self._prefilled.get(fields["request"])
        if leg_kind(fields["leg"]) == "d" and prefilled is not None:
            took_ns = record.time_ns - prefilled.time_ns
            if took_ns > _LONG_HAND_OFF_NS:
                text, weight = f"{text}, {short_time(took_ns)} after its prefill", 4
        self.add(record, text, weight)

    def _leg_finished(self, record: Record) -> None:
        fields = record.fields
        if not self.subject.is_about(fields["request"]):
            return
        if fields["outcome"] not in NORMAL_OUTCOMES:
            self.add(record, f"{fields['leg']} ends on {fields['node']}: {fields['outcome']}", 4)
        elif leg_kind(fields["leg"]) == "p":
            text = f"{fields['node']} ends the prefill {fields['leg']}"
            if earlier := self._prefilled.get(fields["request"]):
                self._moments.append(earlier)
            self._prefilled[fields["request"]] = self.moment(record, text, 1)

    def _hand_off_held(self, record: Record) -> None:
        """In one line with the end of the prefill, which comes right before."""
        fields = record.fields
        if self.subject.is_about(fields["request"]):
            text = f"the router holds {fields['request']} back for {fields['seconds']:g} s"
            prefilled = self._prefilled.get(fields["request"])
            if prefilled is not None and prefilled.time_ns == record.time_ns:
                both = f"{prefilled.text}; {text}"
                self._prefilled[fields["request"]] = replace(prefilled, text=both, weight=4)
            else:
                self.add(record, text, 4)

    def _retried(self, record: Record) -> None:
        if self.subject.is_about(record.fields["request"]):
            self.add(record, f"the router sends {record.fields['request']} again", 4)

    def _forward_began(self, record: Record) -> None:
        """Of the first rank that began: the others do the same."""
        node = record.fields["node"]
        for leg, start, end in record.fields["requests"]:
            if self.subject.is_about(leg) and (node, leg) not in self._passes:
                self._passes[node, leg] = None
                does = pass_in_words(start, end)
                text = f"the first forward pass of {leg_of(leg)} begins on {node}: it {does}"
                self.add(record, text, 4 if node == self.subject.violation.node else 2)

    def _receiving_finished(self, record: Record) -> None:
        fields = record.fields
        if self.subject.is_about(fields["request"]):
            how = "as failed" if fields["failed"] else "as complete"
            leg = leg_of(fields["request"])
            self.add(record, f"{fields['node']} reports the load of {leg} {how}", 3)

    def _sending_finished(self, record: Record) -> None:
        fields = record.fields
        if self.subject.is_about(fields["request"]):
            who = f"{fields['node']} rank {fields['rank']}"
            text = f"{who} reports that the blocks of {leg_of(fields['request'])} may go"
            self.add(record, text, 4)

    def _request_ended(self, record: Record) -> None:
        fields = record.fields
        if self.subject.is_about(fields["request"]):
            outcome = f"{fields['outcome']!r} and {counted(fields['tokens'], 'token')}"
            self.add(record, f"{fields['request']} ends with {outcome}", 3)
