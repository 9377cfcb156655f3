"""What is wrong with typed arguments, in one line: tyro's boxed messages in this project's words."""

import difflib
import re

_EXPECTED = {"INT": "a whole number", "FLOAT": "a number", "STR": "a text", "PATH": "a path"}
_MIRROR = """'{"observation": [1, -2, -3], "action": [-1]}'"""
REPLACED = {  # settings of before 1.1, and what to type for them; empty where nothing does the same
    "--fall-costs": "--fall-cost 1 10@0, a cost and one from a score on",
    "--fall-cost-scores": "--fall-cost 1 10@0, a cost and one from a score on",
    "--action-cost-score": "--action-cost 0.05@200, a cost from a score on",
    **{f"--mirror-{part}": f"--mirror {_MIRROR}" for part in ("observation", "action")},
    "--mirror-offset": """--mirror '{"offset": [0, 0.1]}'""",
    "--mirror-weight": """--mirror '{"weight": 0.4}'""",
    "--no-mirror-check": """--mirror '{"check": false}' with your mirror's other parts""",
    **{f"--{part}": "--convolutions 32x8/4 64x4/2" for part in ("filters", "kernel-sizes", "strides")},
    "--scale-rewards": "--reward-scaling returns",
    "--no-scale-rewards": "--reward-scaling none",
    "--reward-std-of": "--reward-scaling rewards or --reward-scaling returns",
    "--restart-each-epoch": "--epoch-end restart",
    "--no-restart-each-epoch": "--epoch-end continue",
    "--epoch-end-is-terminal": "--epoch-end terminal",
    "--no-epoch-end-is-terminal": "--epoch-end restart",
    "--no-stop-target-gradient": "--value-target one_step_gradient",
    "--stop-target-gradient": "--value-target one_step",
    "--kl-target": "--desired-kl",
    "--kl-coefficient": "",
    "--final-min-std": "",
    "--std-decay": "",
    "--std-decay-score": "",
    "--restart-environments-every": "",
    "--confirming-episodes": "",
    "--evaluate-every": "",
    "--no-target-smoothing": "--target-smoothing 0",
    "--smoothing-std": "--target-smoothing 0.2",
    "--smoothing-clip": "",
    "--target-update": "--hard-update-every 200 for hard updates, 0 for soft ones",
    "--ou-theta": "--ou-dt",
    "--temperature-learning-rate": "",
}


def explained(box: str, help_flag: str) -> str:
    """A boxed error message as one line: what was wrong, what was expected, what to do.

    Args:
        box: as tyro draws it, with frames or without.
        help_flag: what shows every setting.
    """
    paragraphs = _paragraphs(box)
    message, rest = paragraphs[0], " ".join(paragraphs[1:])
    more = f"; {help_flag} shows every setting"
    if found := re.match(r"Error parsing (--[\w-]+): .*?('[^']*'|\[.*\])\.?$", message):
        return _wrong_value(found[1], found[2], rest) + more
    if found := re.match(r"invalid choice (.*) for argument '(--[\w-]+)'. Expected one of \((.*)\)", message):
        choices = found[3].replace("'", "").rstrip(",")
        return f"{found[2]} is {found[1]}: expected one of {choices}{more}"
    if found := re.match(r"Missing value for argument '(--[\w-]+)'", message):
        return f"{found[1]} has no value: type one after it{more}"
    if found := re.match(r"Unrecognized options: (.*?)\.?$", message):
        return _unknown(found[1], rest, more)
    return (message.rstrip(".") or "the settings could not be read") + more


def _paragraphs(box: str) -> list[str]:
    """Its paragraphs without frames and title, each in one line; at least one."""
    lines = [line.strip(" │|╭╮╰╯") for line in box.splitlines()]
    rules = [i for i, line in enumerate(lines) if line and set(line) <= {"─", "-"}]
    start = 2 if 1 in rules else 1  # below the title, and below its rule where the box is drawn without frames
    ends = [*(rule for rule in rules if rule > start), len(lines)]
    starts = [start, *(end + 1 for end in ends[:-1])]
    return [" ".join(filter(None, lines[a:b])) for a, b in zip(starts, ends)]


def _wrong_value(flag: str, typed: str, described: str) -> str:
    """The line for a value of another kind; `described`: the setting's help, with kind and default."""
    kinds = re.search(rf"{flag} (.*?) [A-Z][a-z]", described)
    several = kinds is not None and "[" in kinds[1]
    expected = [text for kind, text in _EXPECTED.items() if kinds is not None and kind in kinds[1]]
    words = re.findall("'([^']*)'", typed)
    line = f"{flag} is {' '.join(words) if several else typed}"
    if not expected:
        return line
    default = re.search(r"\(default: ([^)]*)\)", described)
    shown = default is not None and default[1] not in ("", "None")  # an empty default is no example
    example = f", such as {flag} {default[1]}" if default is not None and shown else ""
    kind = expected[0].replace("a ", "") + "s" if several else expected[0]
    return f"{line}: expected {kind}{' or None' if kinds is not None and '{None}' in kinds[1] else ''}{example}"


def _unknown(typed: str, listed: str, more: str) -> str:
    """The line for words that are no settings, with the most similar setting if there is one."""
    flags = re.findall(r"--\w[\w-]*", typed)
    if not flags:
        return f"{typed} is not a setting: expected --setting value{more}"
    if flags[0] in REPLACED:
        now = REPLACED[flags[0]]
        return f"{flags[0]} is no longer a setting: " + (f"use {now}" if now else "leave it out" + more)
    nearest = difflib.get_close_matches(flags[0], re.findall(r"--\w[\w-]*", listed), n=1)
    return f"{flags[0]} is not a setting" + (f": did you mean {nearest[0]}?" if nearest else more)
