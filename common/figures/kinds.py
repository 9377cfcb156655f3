"""Which figures there are; without matplotlib, so that `--help` is quick."""

from typing import Literal

Kind = Literal["five", "reward", "diagnostics", "time", "seeds", "policy"]
Band = Literal["range", "interquartile"]
