"""Play every attack of tests/adversaries on its weakness and on the repair, and write the table of docs/audit.md."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "audit.md"


def main() -> int:
    """Write the table; 1 if an attack failed on its weakness or worked on the repair."""
    sys.path.insert(0, str(ROOT))
    from tests.adversaries.catalogue import ATTACKS, MARKS, as_markdown

    outcomes = []
    for attack in ATTACKS:
        outcomes.append(attack.run())
        print(f"{outcomes[-1].seconds:6.1f} s  {'shown' if outcomes[-1].proven else 'NOT SHOWN'}  {attack.name}")
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(MARKS[0])
    PAGE.write_text(f"{before}{MARKS[0]}\n\n{as_markdown(outcomes)}\n{MARKS[1]}{rest.partition(MARKS[1])[2]}", "utf-8")
    shown = sum(outcome.proven for outcome in outcomes)
    print(f"{shown} of {len(outcomes)} attacks work on their weakness and fail on the repair.")
    return int(shown < len(outcomes))


if __name__ == "__main__":
    sys.exit(main())
