"""One row in a process of its own: python benchmarks/fault_table/one.py ROW TRIES FOLDER [BROKEN]"""

import _thread
import dataclasses
import json
import os
import sys
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent), str(HERE.parent)]

from fault_table.rows import ROWS  # noqa: E402


def end_with(parent: int) -> None:
    """Stop as by Ctrl-C when the benchmark is gone, so that programs are ended and disks unmounted."""
    while os.getppid() == parent:
        time.sleep(0.5)
    _thread.interrupt_main()


def main() -> None:
    threading.Thread(target=end_with, args=(os.getppid(),), daemon=True).start()
    name, tries, work, *broken = sys.argv[1:]
    tally = ROWS[name].function()(int(tries), Path(work), *broken)
    (Path(work) / "tally.json").write_text(json.dumps(dataclasses.asdict(tally)))


if __name__ == "__main__":
    main()
