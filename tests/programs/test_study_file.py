"""experiments/studies.toml with mistakes."""

import re

import numpy as np
import pytest

from common.errors import UserError
from common.figures.study_figure import ArmScores
from programs import study

GOOD = 'seeds = 1\npanels = ["avg_reward"]\nlow = 0\narms = { one = "walker" }\n'


@pytest.mark.parametrize(
    "text, said",
    [
        (
            "[mine]\n" + GOOD.replace("low = 0\n", ""),
            "studies.toml, [mine]: missing 1 required positional argument: 'low'",
        ),
        ("[mine]\n" + GOOD + "seed = 3\n", "studies.toml, [mine]: got an unexpected keyword argument 'seed'"),
        (
            "[mine]\n" + GOOD + "levels = [{ valu = 3 }]\n",
            "studies.toml, [mine]: got an unexpected keyword argument 'valu'",
        ),
        ("[mine\n" + GOOD, "studies.toml: Expected ']' at the end of a table declaration"),
    ],
)
def test_a_mistake_in_the_file_is_one_line(tmp_path, text, said):
    path = tmp_path / "studies.toml"
    path.write_text(f"[other]\n{GOOD}", encoding="utf-8")
    assert set(study.read_studies(path)) == {"other"}
    path.write_text(f"[other]\n{GOOD}\n{text}", encoding="utf-8")
    with pytest.raises(UserError, match=re.escape(said)):
        study.read_studies(path)


def test_a_panel_that_no_run_has_is_named():
    arms = {"one": ArmScores([{"epoch": np.arange(2), "avg_reward": np.ones(2)}], [1.0], [1.0], 1, [])}
    mistaken = study.Study(1, {"one": ""}, ["avg_rewrad"], low=0)
    with pytest.raises(UserError, match="has no avg_rewrad, but epoch, avg_reward"):
        study.figure_of(mistaken, arms)
