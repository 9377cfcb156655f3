"""The rows of the table and their negative controls."""

import functools
import importlib
from collections.abc import Callable
from dataclasses import dataclass, field

from fault_table.tally import Tally


@dataclass(frozen=True)
class Row:
    """Something that is done many times.

    Attributes:
        where: module and function of this package, which is called with the number of tries, a folder to work in and
            perhaps names of `broken.WAYS`.
        setting: of `Arguments`, that says how often.
        controls: name of a way to break the program → how often.
        program: of `programs.PROGRAMS`, where the function does it to any of them.
    """

    where: str
    setting: str
    controls: dict[str, int] = field(default_factory=dict)
    program: str = ""

    def function(self) -> Callable[..., Tally]:
        """What does it; what it needs is imported only now."""
        module, _, name = self.where.partition(".")
        found = getattr(importlib.import_module(f"fault_table.{module}"), name)
        return functools.partial(found, self.program) if self.program else found


ROWS: dict[str, Row] = {
    "kill -9 in every phase, PPO": Row("kills.kills", "kills", {
        "a save that does nothing": 2, "a loader that always refuses": 2, "a loader that takes the oldest": 2,
        "settings not restored": 2, "generators not restored": 2, "a process left behind": 1,
    }, "PPO"),
    "kill -9 in every phase, PPO on EnvPool": Row("kills.kills", "kills", program="PPO on EnvPool"),
    "kill -9 in every phase, discrete PPO": Row("kills.kills", "kills", program="discrete PPO"),
    "kill -9 in every phase, PPO with a memory": Row("kills.kills", "kills", program="PPO with a memory"),
    "kill -9 in every phase, PPO with masks": Row("kills.kills", "kills", program="PPO with action masks"),
    "kill -9 in every phase, PPO with own networks": Row("kills.kills", "kills", program="PPO with own networks"),
    "kill -9 in every phase, TD3": Row("kills.kills", "kills", program="TD3"),
    "kill -9 in every phase, DDPG": Row("kills.kills", "kills", program="DDPG"),
    "kill -9 in every phase, SAC": Row("kills.kills", "kills", program="SAC"),
    "kill -9 in every phase, TQC": Row("kills.kills", "kills", program="TQC"),
    "kill -9 in every phase, CrossQ": Row("kills.kills", "kills", program="CrossQ"),
    "kill -9 while a complete run is extended": Row("kills.extended", "kills", {
        "done for one number of epochs, done for all": 1, "the shorter run's files left in place": 2,
    }),
    "kill -9 with environments in processes": Row("processes.programs_killed", "kills"),
    "kill -9 of an environment's process": Row("processes.workers_killed", "worker_kills", {
        "a process left behind": 1,
    }),
    "notebook cell stopped or its kernel killed": Row("notebooks.notebook_cells", "cells", {
        "a save that does nothing": 2,
    }),
    "SIGHUP, SIGTERM and Ctrl-C": Row("signals.hang_ups", "signals", {"deaf to SIGHUP": 1}),
    "disk full while training": Row("disks.full_disks", "disks", {"faults of the disk not told": 1}),
    "power cut at a file operation": Row("power.power_cuts", "power_cuts", {
        "fsync removed": 1, "folders not flushed": 1,
    }),
    "crash at a file operation of a save": Row("damage.crashes", "", {"a save that removes the older ones first": 1}),
    "damaged checkpoints": Row("damage.corruptions", "corruptions", {
        "a loader that always refuses": 100, "a loader that takes the oldest": 100, "no checksum": 100,
    }),
    "hostile run folder": Row("hostile.folders", "hostile", {"archives unpickled": 40, "links followed": 40}),
    "link planted in a run folder": Row("hostile.links", "links", {"links followed": 35}),
    "hostile config.json": Row("hostile.configs", "hostile", {"modules it names imported": 100}),
    "hostile hyperparameters.json": Row("hostile.hyperparameters", "hostile", {"hyperparameters not checked": 60}),
    "hostile archive, some unpack to terabytes": Row("hostile.archives", "hostile", {"archives unpickled": 24}),
    "malformed setting": Row("settings.malformed", "settings", {"ranges not checked": 300}),
}  # fmt: skip
