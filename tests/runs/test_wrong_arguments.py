"""What the parser of the command line prints in a box becomes one line."""

from common.runs import wrong_arguments


def test_what_has_no_line_of_its_own_is_said_as_it_is():
    box = "╭─ Parsing error ─╮\n│ Something else.  │\n│ in two lines.    │\n╰─────────────────╯"
    line = wrong_arguments.explained(box, "--help-all")
    assert line == "Something else. in two lines; --help-all shows every setting"


def test_an_empty_box_is_a_line_too():
    line = wrong_arguments.explained("", "--help")
    assert line == "the settings could not be read; --help shows every setting"
