"""A record of what a program does to a folder: every step with the folder's content before it, and every fsync."""

import atexit
import hashlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

Tree = dict[str, list]  # path in the folder → [inode, sha256 of its content; None for a folder]
_EVENTS = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate")
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_recorder: "_Recorder | None" = None


def record(file: Path, folder: Path) -> None:
    """From now on write every step of this process to `file` at its end; contents go into `file`.contents."""
    global _recorder
    _recorder = _Recorder(file, folder)


def note(line: str) -> None:
    """Something to remember between two steps; nothing where nothing is recorded."""
    if _recorder is not None:
        _recorder.add(note=line)


def contents(file: Path) -> Path:
    """The folder of a record's contents, named by their sha256."""
    return file.with_suffix(".contents")


class _Recorder:
    def __init__(self, file: Path, folder: Path) -> None:
        self._file, self._folder, self._process = file, os.path.realpath(folder), os.getpid()
        self._known: dict[tuple[int, int, int], str] = {}  # inode, time of writing and size → sha256
        self._steps: list[dict] = []
        self._busy = False  # with a step of its own
        contents(file).mkdir()
        fsync = os.fsync
        os.fsync = self._recorded(fsync)
        sys.addaudithook(self._hear)
        atexit.register(self._write)

    def _recorded(self, fsync: Callable) -> Callable:
        def recorded(descriptor: int) -> None:
            number = descriptor if isinstance(descriptor, int) else descriptor.fileno()
            fsync(number)
            self.add(fsync=os.fstat(number).st_ino)

        return recorded

    def _hear(self, event: str, arguments: tuple) -> None:
        if event in _EVENTS and not self._busy and os.getpid() == self._process:
            if event == "open" and not (isinstance(arguments[2], int) and arguments[2] & _WRITES):
                return
            self.add(before=event)

    def add(self, **what: object) -> None:
        """A step: what the folder holds at this moment, and what happens."""
        if self._busy or os.getpid() != self._process:
            return
        self._busy = True
        try:
            self._steps.append({"tree": self._tree(), **what})
        finally:
            self._busy = False

    def _tree(self) -> Tree:
        tree: Tree = {"": [os.stat(self._folder).st_ino, None]}
        for path, folders, files in os.walk(self._folder):
            for name in folders:
                whole = os.path.join(path, name)
                tree[os.path.relpath(whole, self._folder)] = [os.stat(whole).st_ino, None]
            for name in files:
                whole = os.path.join(path, name)
                status = os.stat(whole)
                key = status.st_ino, status.st_mtime_ns, status.st_size
                if key not in self._known:
                    self._known[key] = self._keep(whole)
                tree[os.path.relpath(whole, self._folder)] = [status.st_ino, self._known[key]]
        return tree

    def _keep(self, path: str) -> str:
        with open(path, "rb") as file:
            content = file.read()
        name = hashlib.sha256(content).hexdigest()
        (contents(self._file) / name).write_bytes(content)
        return name

    def _write(self) -> None:
        self.add(note="end")
        self._busy = True
        self._file.write_text(json.dumps(self._steps), "utf-8")
