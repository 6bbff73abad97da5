"""``python -m tests.fuzz.run --target all --executions 1000000 --json counts.json``.

Cheap targets get more of the executions. The JSON holds, for every target, the numbers of
executions, accepted inputs and refusals by error, and every defect with its input. The exit code is
1 if there is a defect.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from tests.fuzz.campaign import Campaign
from tests.fuzz.targets import CONTROLS, NAMES, share_of


def shared(executions: int, names: list[str]) -> dict[str, int]:
    """The executions of each target, at least one."""
    total = sum(map(share_of, names))
    return {name: max(1, -(-executions * share_of(name) // total)) for name in names}


def main(arguments: list[str] | None = None) -> int:
    """1 if a defect was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="all", choices=["all", *NAMES, *CONTROLS])
    parser.add_argument("--executions", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    said = parser.parse_args(arguments)
    names = NAMES if said.target == "all" else [said.target]
    results = {}
    for name, count in shared(said.executions, names).items():
        campaign = Campaign(name, said.seed).run(count)
        results[name] = campaign.to_dict()
        rate = campaign.executions / max(campaign.seconds, 1e-9)
        refused = sum(campaign.refused.values())
        print(
            f"{name:18} {campaign.executions:9,} executions, {campaign.accepted:8,} accepted, "
            f"{refused:8,} refused, {results[name]['defects']:4} defects, {rate:7,.0f}/s",
            flush=True,
        )
        for group in campaign.defects.values():
            print(f"    {group['count']} x {group['kind']} at {group['where']}: {group['message']}")
    totals = {
        key: sum(result[key] for result in results.values())
        for key in ("executions", "accepted", "defects")
    }
    print(f"in all {totals['executions']:,} executions, {totals['defects']} defects")
    if said.json is not None:
        told = {"seed": said.seed, "totals": totals, "targets": results}
        said.json.write_text(json.dumps(told, indent=1) + "\n")
    return int(totals["defects"] > 0)


if __name__ == "__main__":
    sys.exit(main())
