"""What engines and oracles had to say: logs, deaths, messages, waits, findings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from faults.story.answers import SAME_OUTPUT
from faults.story.chapter import Chapter
from faults.story.moment import Moment
from faults.story.names import ERRORS, requests_named, said, whole
from faults.story.subject import Subject, rank_of
from sim.kernel.log import Record
from sim.oracles.words import seconds
from sim.request_ids import leg_of
from sim.scenario.workloads import EPILOGUE
from sim.units import seconds_to_ns

_LOGS_SHOWN = 3
_WAITS_SHOWN = 3
_SERVANTS = ("input", "outputs")  # tasks that always wait, for requests and results


class Voices(Chapter):
    """Everything else that concerns the engines and requests of the story."""

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self._logs: list[Moment] = []
        self._errors: list[Moment] = []
        self._heard: dict[str, Moment] = {}
        self._open: dict[str, dict[str, None]] = {}
        self._known: dict[str, None] = {}
        self._posts: dict[int, str] = {}
        self._posted_ns: dict[tuple[Any, Any], int] = {}
        self._failures: dict[str, tuple[Moment, ...]] = {}
        self._reports: dict[tuple[int, str], dict[str, Moment]] = {}
        self._is_quiet = False
        self.kinds = {
            "log": self._log,
            "task-failed": self._task_failed,
            "engine-died": self._engine_died,
            "process-crashed": self._process,
            "process-paused": self._process,
            "process-resumed": self._process,
            "message-delivered": self._message,
            "posted": self._posted,
            "queue-pair-error": self._queue_pair,
            "completion": self._completion,
            "leg-sent": self._leg_sent,
            "leg-finished": self._leg_finished,
            "request-arrived": self._arrived,
            "still-waiting": self._waiting,
            "violation": self._violation,
        }

    def moments(self) -> list[Moment]:
        heard = self._last_heard() if self._asks_who_was_heard() else []
        failures = [moment for told in self._failures.values() for moment in told]
        told = [*self._told_logs(), *heard, *failures, *self._told_reports()]
        return [*self._moments, *told]

    def _told_reports(self) -> list[Moment]:
        """One line for what is reported of one at one time, with the rule first that says most."""
        told = []
        for (_, who), by_oracle in self._reports.items():
            oracles = sorted(by_oracle, key=rank_of)
            names = " and ".join(filter(None, [", ".join(oracles[:-1]), oracles[-1]]))
            text = f"{names} {'are' if len(oracles) > 1 else 'is'} reported for {who}"
            told.append(replace(by_oracle[oracles[0]], text=text))
        return told

    def _told_logs(self) -> list[Moment]:
        return [*self._errors[:_LOGS_SHOWN], *self._logs[-_LOGS_SHOWN:]]

    def _last_heard(self) -> list[Moment]:
        if self._heard:
            return [*self._heard.values()]
        told = self.subject.violation
        text = f"{told.node} has heard nothing from another engine before the quiet phase"
        return [Moment(seconds_to_ns(told.time_s), text, 4)] if told.node else []

    def _asks_who_was_heard(self) -> bool:
        """Blocks that never come back, and requests that never end, are about missing messages."""
        kind = self.subject.violation.evidence.get("kind")
        return self.subject.violation.oracle == "leak" or kind in ("never-released", "not-ended")

    # ------------------------------------------------------------------ engines

    def _concerns(self, node: str) -> bool:
        return node in self.subject.nodes or any(
            self.subject.is_about(leg) for leg in self._open.get(node, ())
        )

    def _log(self, record: Record) -> None:
        """Of the story's engines, unless other requests are named and none of the story's; an
        error that names one of those is told whoever logs it, and whenever."""
        node, message = record.actor.partition("/")[0], str(record.fields["message"])
        is_error = record.fields["level"] in ERRORS
        is_near = self._concerns(node) and not self.subject.found
        if not (is_near or is_error) or (text := said(message)) is None:
            return
        named = requests_named(message, self._known)
        line = f"{node} logs: {whole(text)}"
        if is_error and any(map(self.subject.is_about, named)):
            self._errors.append(self.moment(record, line, 5))
        elif is_near and (not named or any(map(self.subject.is_about, named))):
            self._logs.append(self.moment(record, line, 3))

    def _task_failed(self, record: Record) -> None:
        fields = record.fields
        if self._concerns(record.actor.partition("/")[0]):
            at = f", raised at {fields['at']}" if fields.get("at") else ""
            what = f"{fields['error']}: {whole(str(fields['message']))}"
            self.add(record, f"the thread {record.actor} ends with {what}{at}", 5)

    def _engine_died(self, record: Record) -> None:
        fields = record.fields
        node = fields["node"]
        if not self._concerns(node):
            return
        if fields.get("injected"):
            self.add(record, f"{node} is crashed", 5)
            return
        served = [leg_of(leg) for leg in self._open.get(node, ())]
        more = f", with {', '.join(served[:3])} under way" if served else ""
        self.add(record, f"{node} dies{more}: {fields['reason']}", 5)

    def _process(self, record: Record) -> None:
        process, verb = record.fields["process"], record.kind.partition("-")[2]
        if verb != "crashed" and self._concerns(process.partition("/")[0]):
            self.add(record, f"the process {process} is {verb}", 4)

    def _posted(self, record: Record) -> None:
        if "queue_pair" in record.fields:  # copies between GPUs have none
            self._posts[record.fields["queue_pair"]] = record.actor.partition("/")[0]
        key = record.fields["initiator"], record.fields["uid"]
        self._posted_ns[key] = record.time_ns

    def _queue_pair(self, record: Record) -> None:
        node = self._posts.get(record.fields["queue_pair"])
        if node is not None and self._concerns(node):
            text = f"queue pair {record.fields['queue_pair']} goes into state ERROR"
            self.add(record, text, 2)

    def _completion(self, record: Record) -> None:
        """Of each engine the first failure, and the last of what was posted after one was known."""
        fields = record.fields
        node = self._posts.get(fields["queue_pair"])
        posted_ns = self._posted_ns.get((fields["initiator"], fields["uid"]))
        if fields["status"] == "SUCCESS" or node is None or posted_ns is None:
            return
        told = self._failures.get(node, ())
        if not self._concerns(node) or (told and posted_ns < told[-1].time_ns):
            return
        text = (
            f"the {fields['operation']} that {node} posted at {seconds(posted_ns)} fails with "
            f"{fields['status']} (transfer {fields['uid']})"
        )
        self._failures[node] = (*told[:1], self.moment(record, text, 4))

    # ------------------------------------------------------- messages and waits

    def _arrived(self, record: Record) -> None:
        self._known[record.fields["request"]] = None
        self._is_quiet |= str(record.fields["request"]).startswith(EPILOGUE)

    def _leg_sent(self, record: Record) -> None:
        self._open.setdefault(record.fields["node"], {})[record.fields["leg"]] = None

    def _leg_finished(self, record: Record) -> None:
        self._open.get(record.fields["node"], {}).pop(record.fields["leg"], None)

    def _message(self, record: Record) -> None:
        target = record.fields["target"].partition("/")[0]
        source = record.fields["source"].partition("/")[0]
        if self._concerns(target) and source != target and not self._is_quiet:
            text = f"the last message before the quiet phase reaches {target}, from {source}"
            self._heard[target] = self.moment(record, text, 4)

    def _waiting(self, record: Record) -> None:
        waits = [wait for wait in record.fields["waiting"] if self._is_worth_telling(wait)]
        for wait in waits[:_WAITS_SHOWN]:
            self.add(record, wait, 5)

    def _is_worth_telling(self, wait: str) -> bool:
        path = wait.partition(" ")[0]
        return self._concerns(path.partition("/")[0]) and not path.endswith(_SERVANTS)

    def _violation(self, record: Record) -> None:
        """Wrong answers are told by a chapter of their own."""
        fields: dict[str, Any] = record.fields
        told = self.subject.violation
        if fields["oracle"] == SAME_OUTPUT:
            return
        is_same_node = told.request_id is None and fields["node"] in self.subject.nodes
        if not (is_same_node or self.subject.is_about(fields["request"])):
            return
        if fields["oracle"] not in self.subject.found:
            self.subject.found[fields["oracle"]] = None
            who = leg_of(fields["request"]) if fields["request"] else fields["node"]
            reports = self._reports.setdefault((record.time_ns, who), {})
            reports[fields["oracle"]] = self.moment(record, "", 6)
