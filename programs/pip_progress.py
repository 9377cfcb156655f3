"""pip's output as one line that is updated in place. Only the standard library is imported here."""

import re
import subprocess
from collections.abc import Callable, Iterable, Sequence

WIDTH = 100  # characters of the line
_FILE = re.compile(
    r"\s*(?:Downloading|Using cached) (?:\S*/)?([\w.]+?)-(\d[\w.+!]*?)(?:-\S+)?\.(?:whl|tar\.gz|zip) \((.+?)\)"
)
_BYTES = re.compile(r"\s*Progress (\d+) of (\d+)")  # of --progress-bar raw
_BUILD = re.compile(r"\s*Building wheels? for ([\w.-]+)")
_INSTALL = re.compile(r"\s*Installing collected packages: (.+)")


class PipProgress:
    """What pip is doing, in one line: the package, its size and how much of it is there."""

    def __init__(self) -> None:
        self._downloads, self._file, self.text = 0, "", ""

    def take(self, line: str) -> bool:
        """Read a line of pip's.

        Args:
            line: as pip printed it.

        Returns:
            Whether `text` has changed.
        """
        before = self.text
        if found := _FILE.match(line):
            self._downloads += 1
            name, version, size = found.groups()
            self._file = self.text = f"package {self._downloads}: {name.replace('_', '-')} {version}, {size}"
        elif (found := _BYTES.match(line)) and self._file and int(found[2]):
            self.text = f"{self._file}, {100 * int(found[1]) // int(found[2])}%"
        elif found := _BUILD.match(line):
            self.text = f"building {found[1]}"
        elif found := _INSTALL.match(line):
            self.text = f"unpacking {len(found[1].split(','))} packages"
        elif line.startswith("Collecting ") and not self._file:
            self.text = "finding the versions that fit together"
        return self.text != before


def run_showing_progress(
    command: Sequence[str], environment: dict[str, str], popen: Callable = subprocess.Popen
) -> tuple[int, str]:
    """Run pip, and show what it does in one line that is taken away at the end.

    Args:
        command: pip and its arguments.
        environment: variables of the process.
        popen: `subprocess.Popen`; tests replace it.

    Returns:
        pip's exit code, and what it printed, without its progress.
    """
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "errors": "replace"}
    with popen(list(command), env=environment | {"PYTHONUNBUFFERED": "1"}, **pipes) as process:
        try:
            printed = _show(process.stdout)
        except BaseException:  # the stop button
            process.kill()
            raise
    return process.returncode, "".join(printed)


def _show(lines: Iterable[str]) -> list[str]:
    """Show progress; returns the lines that are not progress itself."""
    progress, printed = PipProgress(), []
    for line in lines:
        if not _BYTES.match(line):
            printed.append(line)
        if progress.take(line):
            print(f"\r{progress.text[:WIDTH]:<{WIDTH}}", end="", flush=True)
    if progress.text:
        print(f"\r{'':<{WIDTH}}\r", end="", flush=True)
    return printed
