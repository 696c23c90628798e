"""Same output: a request that ends normally has the tokens of an undisturbed, colocated run.

It compares with the pure function that defines the model; that colocated engines agree with
that function is shown elsewhere.
"""

from __future__ import annotations

from sim.oracles.base import NORMAL_OUTCOMES, Oracle


class SameOutput(Oracle):
    """O2."""

    name = "same-output"
    summary = "A request that ends normally has the tokens of the colocated run"

    def sample_ended(self, request_id: str, outcome: str, tokens: list[int]) -> None:
        """Sampling is greedy, so all samples of a prompt are the same."""
        self.request_ended(request_id, outcome, tokens)

    def request_ended(self, request_id: str, outcome: str, tokens: list[int]) -> None:
        if outcome not in NORMAL_OUTCOMES:
            return
        count = self.context.requested_tokens(request_id)
        expected = list(self.context.expected_tokens(request_id, count))
        if tokens == expected:
            return
        common = min(len(tokens), len(expected))
        first = next((i for i in range(common) if tokens[i] != expected[i]), common)
        self.report(
            f"{request_id} ended with {outcome!r} and {len(tokens)} of {count} tokens; "
            f"{_difference(tokens, expected, first)}",
            request_id=request_id,
            first_difference=first,
            tokens=tokens[first : first + 8],
            expected=expected[first : first + 8],
        )


def _difference(tokens: list[int], expected: list[int], first: int) -> str:
    if first >= len(tokens):
        return f"output token {first} and all after it are missing"
    if first >= len(expected):
        return f"from output token {first} on it has more than it asked for"
    return f"output token {first} is {tokens[first]} and should be {expected[first]}"
