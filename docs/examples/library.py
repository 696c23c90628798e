"""faultlab as a library: a run that passes, and one with a fault, which does not."""

from __future__ import annotations

from faults import RuleBroken, Scenario, Topology, UniformWorkload, run, with_faults

small = UniformWorkload(requests=4, prompt_tokens=(40, 60), output_tokens=(2, 3))
scenario = Scenario(workload=small, topology=Topology(consumers=2), quiet_phase_s=1.0)

ran = run(scenario)
print(ran.verdict, ran.outcome.requests["length"])  # prints: pass 4
print(run(scenario).outcome.event_hash == ran.outcome.event_hash)  # prints: True

lost = run(with_faults(scenario, ["hand-off-lost:request=req-1"]))
print(lost.faults[0].kind, lost.faults[0].strikes)  # prints: hand-off-lost 1
print(lost.outcome.signature())  # prints: ['leak', 'release-once']
try:
    lost.require_pass()
except RuleBroken as broken:
    print("how it came about" in str(broken))  # prints: True
