"""Run in an SGLang environment: drives every consumer of the package and prints what was seen, as JSON.

A row that raised has `error` in the place of `source`: no finding, and told apart from one.
"""

from __future__ import annotations

import json

from harness.reads.drive import observe
from harness.reads.judge import check_name
from harness.reads.registry import load_consumers


def main() -> None:
    rows = {}
    for consumer in load_consumers().values():
        for role in consumer.roles:
            try:
                seen = observe(consumer, role)
            except Exception as error:  # noqa: BLE001 (told as the row's error)
                rows[check_name(consumer.name, role)] = {"error": f"{type(error).__name__}: {error}"}
            else:
                rows[check_name(consumer.name, role)] = {
                    "source": seen.source,
                    "used": [numbers["used"] for numbers in seen.numbers],
                    "where": seen.where,
                }
    # The package prints what it likes on stdout.
    print(f"\nROWS {json.dumps(rows)}", flush=True)


if __name__ == "__main__":
    main()
