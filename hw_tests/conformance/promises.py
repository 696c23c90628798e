"""Conformance of ``mori.io``: what one may do when a status says so, and how long one waits."""

from __future__ import annotations

from typing import Any

import torch

from hw_tests.conformance.arm import Arm, Cases

case = Cases("gpu-rdma", "xgmi")

_ITEMS, _ITEM, _STRIDE = 64, 4096, 8192
_SIZE = _ITEMS * _STRIDE
_ROUNDS = 20


def _expected(number: int) -> torch.Tensor:
    """The items of a round where they belong, and zeros between."""
    wanted = torch.zeros(_SIZE, dtype=torch.uint8)
    for index in range(_ITEMS):
        begin = index * _STRIDE
        wanted[begin : begin + _ITEM].fill_((number * 7 + index) % 251 + 1)
    return wanted


def _until_over(arm: Arm, status: Any) -> None:
    for _ in range(1_000_000):
        if not status.InProgress():
            return
        arm.sleep(0.000_01)
    raise AssertionError("a transfer did not end")


@case("1.8")
def all_bytes_are_there_when_a_status_succeeds(arm: Arm) -> None:
    """Of every item of a batch, the moment it says so, round after round; none lie beside them."""
    pair = arm.pair(size=_SIZE, qp_per_transfer=4)
    session = pair.session()
    offsets = [index * _STRIDE for index in range(_ITEMS)]
    for number in range(_ROUNDS):
        wanted = _expected(number)
        pair.remote.copy_(wanted.to(pair.remote.device))
        pair.local.zero_()
        pair.local[:1].cpu()  # a device that zeroes later would hide what arrives
        status = session.batch_read(offsets, offsets, [_ITEM] * _ITEMS, number)
        _until_over(arm, status)
        assert status.Succeeded(), status.Message()
        assert torch.equal(pair.local.cpu(), wanted), number


@case("1.8")
def all_bytes_of_all_calls_are_there_when_wait_all_succeeds(arm: Arm) -> None:
    """Each status of the list is over, and its bytes are at the other end."""
    pair = arm.pair(size=_SIZE)
    session = pair.session()
    for number in range(_ROUNDS):
        wanted = _expected(number)
        pair.local.copy_(wanted.to(pair.local.device))
        pair.remote.zero_()
        pair.remote[:1].cpu()
        statuses = [
            session.write(index * _STRIDE, index * _STRIDE, _ITEM, index) for index in range(_ITEMS)
        ]
        assert pair.initiator.wait_all(statuses, 20_000) == arm.mori.StatusCode.SUCCESS
        assert all(status.Succeeded() for status in statuses)
        assert torch.equal(pair.remote.cpu(), wanted), number


@case("1.8", over=("gpu-rdma",))
def wait_all_waits_for_the_good_and_tells_of_the_bad(arm: Arm) -> None:
    """A call that was refused among others that run: those are over, too, when the wait ends."""
    pair = arm.pair(size=_SIZE)
    session, code = pair.session(), arm.mori.StatusCode
    good = [session.read(0, 0, _SIZE, uid) for uid in range(4)]
    refused = session.read(0, 1, _SIZE, 4)
    assert pair.initiator.wait_all([*good, refused], -1) == code.ERR_INVALID_ARGS
    assert all(status.Succeeded() for status in good)


@case("1.8", "completions", over=("gpu-rdma",))
def wait_all_gives_up_at_its_deadline_and_the_transfer_goes_on(arm: Arm) -> None:
    """IN_PROGRESS after the time that was given; a second wait sees the end."""
    pair = arm.pair(size=_SIZE)
    session, code = pair.session(), arm.mori.StatusCode
    arm.hold(pair.initiator, 1)
    statuses = [session.read(0, 0, 64, uid) for uid in range(3)]
    began = arm.seconds()
    assert pair.initiator.wait_all(statuses, 200) == code.IN_PROGRESS
    assert 0.19 < arm.seconds() - began < 0.9
    assert pair.initiator.wait_all(statuses, 20_000) == code.SUCCESS
    assert arm.seconds() - began < 5
