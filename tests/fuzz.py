"""The long run of the fuzz harness, by hand: ``python tests/fuzz.py --seconds 600 [--kind K ...] [--seed N]``.

Damages copies of every sample at random until the time is up and prints each finding with what makes it again: the
kind, the file, the seed and the number (``--seed S --first N --count 1 --kind K``). The suite runs the first cases of
seed 0.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])


def main() -> int:
    """Runs one worker a process; the exit code is 1 if anything was found."""
    from tests.fuzzing.campaign import run
    from tests.fuzzing.openers import OPENERS

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--kind", nargs="+", choices=sorted(OPENERS), default=sorted(OPENERS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=10**9)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--fixed", action="store_true", help="the fixed cases too")
    args = parser.parse_args()
    groups = [args.kind[part :: args.processes] for part in range(args.processes)]
    with concurrent.futures.ThreadPoolExecutor(len(groups)) as pool:
        options = {
            "seed": args.seed,
            "count": args.count,
            "first": args.first,
            "seconds": args.seconds,
            "fixed": args.fixed,
        }
        outcomes = list(pool.map(lambda kinds: run(kinds, **options), [group for group in groups if group]))
    for outcome in outcomes:
        for finding in outcome.findings:
            print(finding)  # noqa: T201  a program
    cases = sum(outcome.cases for outcome in outcomes)
    seconds, peak = max(o.seconds for o in outcomes), max(o.peak_mb for o in outcomes)
    found = sum(len(outcome.findings) for outcome in outcomes)
    kinds = f"{cases} cases of {len(args.kind)} kinds"
    print(f"{kinds} in {seconds:.0f} s, seed {args.seed}, peak {peak} MB, {found} findings")  # noqa: T201  a program
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
