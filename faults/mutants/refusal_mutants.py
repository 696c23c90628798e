"""Mutants of what the connector refuses: peers, offers, bytes that are not the producer's."""

from __future__ import annotations

from faults.mutants.mutant import QUEUED, READ_ONCE, Change, Mutant

_VERIFIED = {"extra_config.verify_reads": "all"}
_UNPROTECTED = QUEUED | {"extra_config.defer_timeout": "0.02"}
"""Leases that are over before anybody reads, unless they are renewed."""

REFUSAL_MUTANTS = (
    Mutant(
        name="digest-not-compared",
        breaks="Digests of what was read are asked for and not compared.",
        module="connector.core.verification",
        qualname="differing",
        right="if mine != other]",
        wrong="if False]",
        settings=_VERIFIED,
    ),
    Mutant(
        name="digest-of-the-wrong-side",
        breaks="The producer's digests are compared with themselves.",
        module="connector.confirmation",
        qualname="Confirmation._compare",
        right="differing(load.asked.share, ours, answer.digests)",
        wrong="differing(load.asked.share, answer.digests, answer.digests)",
        settings=_VERIFIED,
    ),
    Mutant(
        name="digest-of-other-blocks",
        breaks="The consumer digests its own blocks of the producer's numbers.",
        module="connector.confirmation",
        qualname="Confirmation._next",
        right="(piece.layer, piece.ours)",
        wrong="(piece.layer, piece.theirs)",
        settings=_VERIFIED | {"kv_load_failure_policy": "fail"},
    ),
    Mutant(
        name="unverified-counts",
        breaks="A load is loaded without verification, whatever verify_reads says.",
        module="connector.core.verification",
        qualname="is_verified",
        right='return mode == "all"',
        wrong="return False",
        settings=_VERIFIED,
    ),
    Mutant(
        name="prompt-not-compared",
        breaks="An offer is taken up whatever prompt it was made for.",
        module="connector.core.offer",
        qualname="_check_same",
        right="if theirs.digest != ours.digest:",
        wrong="if False:",
        also=(  # each of the two digests has the prompt in it
            Change(
                module="connector.core.offer",
                qualname="_digest",
                right="{prompt.digest} ",
                wrong="",
            ),
        ),
        settings={"workload.prompt_tokens": "[200, 200]", "workload.interval_ms": "0"},
        faults=("mixed-up-params",),
    ),
    Mutant(
        name="unverified-peer-accepted",
        breaks="A peer is read from though it cannot be asked about what is read.",
        module="connector.peer_book",
        qualname="PeerBook.check_safe",
        right="assert peer.welcome is not None",
        wrong="return",
        settings=_VERIFIED | _UNPROTECTED,
    ),
    Mutant(
        name="fingerprint-not-compared",
        breaks="A peer with other caches is read from.",
        module="connector.core.fingerprint",
        qualname="check_same",
        right="if found:",
        wrong="if False:",
        apart_share=1.0,
    ),
    Mutant(
        name="time-out-not-kept",
        breaks="A load may take twenty times its time-out, and a step that waits for it.",
        module="connector.core.config",
        qualname="parse_settings",
        right='get("transfer_timeout", _seconds)',
        wrong='20 * get("transfer_timeout", _seconds)',
        settings={
            "extra_config.load_mode": "sync",
            "extra_config.transfer_timeout": "1",
            "kv_load_failure_policy": "fail",
        },
    ),
    Mutant(
        name="failure-spreads",
        breaks="One failed load takes the blocks of all with it that end in the same step.",
        module="connector.worker",
        qualname="ConsumerRank.results",
        right="if request_id in failed and self._has_one_group:",
        wrong="if failed and self._has_one_group:",
        # Loads from two producers end together; what fails one of a producer's fails all of them.
        settings=READ_ONCE
        | {"topology.producers": "2", "workload.requests": "8", "workload.interval_ms": "0"},
        faults=("completion-error",),
    ),
)
