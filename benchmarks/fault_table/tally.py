"""What came of one row."""

import sys
from dataclasses import dataclass, field

MOST_NOTES, LONGEST_NOTE = 20, 500


@dataclass
class Tally:
    """How often it was done, how often it was survived, where it was done, and why not."""

    tries: int = 0
    survived: int = 0
    phases: dict[str, int] = field(default_factory=dict)  # of the program → how often it happened in it
    notes: list[str] = field(default_factory=list)  # what was lost
    skipped: str = ""  # why it cannot be tried here

    def count(self, survived: bool, note: str = "", phase: str = "") -> None:
        self.tries += 1
        self.survived += bool(survived)
        if phase:
            self.phases[phase] = self.phases.get(phase, 0) + 1
        if not survived:
            self.note(f"lost: {note}")

    def note(self, text: str) -> None:
        """Keep and show it, the first few in full."""
        short = text.encode("ascii", "backslashreplace").decode()[:LONGEST_NOTE]
        self.notes = [*self.notes, short][:MOST_NOTES]
        if len(self.notes) < MOST_NOTES:
            print(short, file=sys.stderr, flush=True)
