"""One row in a process of its own: python benchmarks/fault_table/one.py ROW TRIES FOLDER [BROKEN]"""

import dataclasses
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent), str(HERE.parent)]

from fault_table.rows import ROWS  # noqa: E402


def end_with(parent: int) -> None:
    """Stop in good order when the benchmark is gone, so that programs are ended and disks unmounted."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGTERM)


def stop(number: int, frame: FrameType | None) -> None:
    """Leave every `with` block."""
    raise SystemExit(128 + number)


def main() -> None:
    signal.signal(signal.SIGTERM, stop)
    threading.Thread(target=end_with, args=(os.getppid(),), daemon=True).start()
    name, tries, work, *broken = sys.argv[1:]
    tally = ROWS[name].function()(int(tries), Path(work), *broken)
    (Path(work) / "tally.json").write_text(json.dumps(dataclasses.asdict(tally)), "utf-8")


if __name__ == "__main__":
    main()
