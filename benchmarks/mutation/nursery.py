"""Runs tests in children of a process that has imported the big libraries already, and nothing of this project.

A line of JSON for each run comes in: the tree whose tests are run, pytest's arguments, a time limit in seconds. One
goes out: the exit code (None: the time was up), seconds, and the first test that failed.
"""

import contextlib
import json
import os
import re
import signal
import sys
import tempfile
import time
from pathlib import Path

BIG = (
    "tensorflow keras tensorflow_probability pytest hypothesis gymnasium matplotlib.figure scipy.stats rich envpool "
    "nbformat"
)


def import_what_is_big() -> None:
    """What takes seconds to import, and what tests import anyway."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
    names = os.environ.get("MUTANTS_IMPORT", BIG)
    for name in names.split():
        with contextlib.suppress(ImportError):
            __import__(name)
    if "tensorflow_probability" in sys.modules:
        sys.modules["tensorflow_probability"].distributions.Normal  # noqa: B018  loaded when first used


def run(tree: str, arguments: list[str], limit: float) -> dict[str, object]:
    """Run pytest in a child, and end all that it started."""
    began, parent = time.monotonic(), os.getppid()
    with tempfile.TemporaryFile("w+", encoding="utf-8") as output:
        child = os.fork()
        if not child:
            _be_pytest(tree, arguments, output.fileno())
        code = None
        while time.monotonic() - began < limit and os.getppid() == parent:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                code = os.waitstatus_to_exitcode(status)
                break
            time.sleep(0.05)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        if code is None:
            os.waitpid(child, 0)
        output.seek(0)
        failed = re.search(r"^(?:FAILED|ERROR) (\S+)", output.read(), re.MULTILINE)
    return {"code": code, "seconds": time.monotonic() - began, "by": failed[1] if failed else ""}


def _be_pytest(tree: str, arguments: list[str], output: int) -> None:
    code = 70
    try:
        os.setsid()
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.closerange(3, 256)  # among them what answers are written to
        os.chdir(tree)
        sys.dont_write_bytecode = True
        sys.path[:0] = [tree, str(Path(tree) / "tests")]
        import pytest

        options = ["-o", "addopts=", "-p", "no:cacheprovider", "-x", "-q", "--tb=no", "-rfE"]
        code = int(pytest.main([*options, *arguments]))
    finally:
        sys.stdout.flush()
        os._exit(code)


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")  # whatever the libraries print goes elsewhere
    os.dup2(2, 1)
    import_what_is_big()
    for line in sys.stdin:
        print(json.dumps(run(**json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    main()
