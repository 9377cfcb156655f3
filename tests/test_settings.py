"""Settings in parts: ranges, groups and texts beside their fields, whole configs flat."""

import dataclasses
import json
import math
import re
from dataclasses import dataclass

import numpy as np
import pytest

from common.config import TrainingConfig
from common.errors import UserError
from common.runs.arguments import REPLACED
from common.runs.command_line import parse
from common.runs.options import RunOptions
from common.settings import SMALLEST, Range, Settings, declared, described, json_object, setting
from companions import presets as companions_presets
from companions import sac_presets
from companions.config import OffPolicyConfig, SACConfig
from ppo import presets as ppo_presets
from ppo.config import PPOConfig

WHOLE = [PPOConfig, OffPolicyConfig, SACConfig, RunOptions]


@dataclass(frozen=True)
class TemperatureSettings(Settings):
    """A part of a method that nothing here knows."""

    GROUP = "temperature"

    temperature: float = setting(0.2, at_least=SMALLEST, main=True)
    """Weight of the policy's entropy."""
    temperatures: tuple[float, ...] = setting((1.0, 2.0), at_least=1, at_most=4)
    """Several
    of them."""
    lowest: float | None = setting(None, at_most=-1)


@dataclass(frozen=True)
class OtherConfig(TemperatureSettings, TrainingConfig):
    """A method that nothing here knows."""

    METHOD = "other"

    epochs: int = 7
    seed: int = setting(3, at_least=3)
    """Seed of this method."""


def test_a_new_method_brings_its_settings_along():
    config = OtherConfig(temperature=0.5)
    assert (config.epochs, config.seed, config.num_envs, config.temperature) == (7, 3, 16, 0.5)
    settings = described(OtherConfig)
    assert settings["temperature"].group == "temperature" and settings["temperature"].main
    assert settings["temperatures"].text == "Several of them."
    assert settings["lowest"].text == ""
    preset, typed, _ = parse(
        ["--temperature", "0.25", "--epochs", "4"], "program", {"other": OtherConfig()}, "other", lambda env: "other"
    )
    assert (preset, typed) == ("other", OtherConfig(temperature=0.25, epochs=4))


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"temperature": 0.0}, "temperature is 0.0: expected above 0"),
        ({"temperature": math.nan}, "temperature is nan: expected a finite number, above 0"),
        ({"temperatures": (1.0, 5.0)}, "temperatures is (1.0, 5.0): expected 1 to 4 for each number"),
        ({"temperatures": (0.5,)}, "temperatures is (0.5,): expected 1 to 4 for each number"),
        ({"lowest": -0.5}, "lowest is -0.5: expected -1 or less"),
        ({"epochs": 0}, "epochs is 0: expected 1 or more"),  # only its default was changed
        ({"seed": 2}, "seed is 2: expected 3 or more"),  # its range as well
        ({"reward_factor": math.inf}, "reward_factor is inf: expected a finite number"),
        ({"epochs": "3"}, "epochs is '3': expected a whole number"),
        ({"epochs": True}, "epochs is True: expected a whole number"),
        ({"epochs": 2.0}, "epochs is 2.0: expected a whole number"),
        ({"temperature": "high"}, "temperature is 'high': expected a number"),
        ({"temperature": False}, "temperature is False: expected a number"),
        ({"adopt_best": 1}, "adopt_best is 1: expected True or False"),
        ({"gamma": 0.5}, None),
    ],
)
def test_a_value_out_of_range_is_refused_in_its_fields_words(changes, line):
    if line is None:  # another method's
        with pytest.raises(TypeError, match="gamma"):
            OtherConfig(**changes)
        return
    with pytest.raises(UserError) as error:
        OtherConfig(**changes)
    assert str(error.value) == line
    OtherConfig(temperature=SMALLEST, temperatures=(1, 4), lowest=-1, seed=3, epochs=1)  # ends are included
    OtherConfig(lowest=None)


def test_a_changed_default_keeps_range_group_and_text():
    base, other = described(TrainingConfig), described(OtherConfig)
    assert other["epochs"] == base["epochs"]._replace(default=7)
    assert (other["seed"].group, other["seed"].main) == (base["seed"].group, base["seed"].main)
    assert other["seed"].text == "Seed of this method." != base["seed"].text


@pytest.mark.parametrize("kind", WHOLE)
def test_every_setting_is_described_in_whole_sentences(kind):
    settings = described(kind)
    assert [*settings] == [field.name for field in dataclasses.fields(kind)]
    for setting_ in settings.values():
        assert setting_.group != Settings.GROUP
        assert re.fullmatch(r"[A-Z][^\n]{15,}\.", setting_.text), setting_.text


@pytest.mark.parametrize("kind", WHOLE)
def test_every_number_has_a_range_beside_it(kind):
    numbers = [what for what in declared(kind).values() if re.search(r"\b(int|float)\b", str(what.kind))]
    unlimited = {what.name for what in numbers if what.range == Range()} - {"env_kwargs", "mirror"}
    assert unlimited <= {"reward_factor", "validate_from", "stop_score", "target_entropy"}
    assert len(numbers) > 3


@pytest.mark.parametrize(
    ("presets", "default", "module"),
    [
        (ppo_presets.PRESETS, "bipedal-walker", ppo_presets),
        (companions_presets.PRESETS, "pendulum-td3-fast", companions_presets),
        (sac_presets.PRESETS, "pendulum-sac", sac_presets),
    ],
)
def test_the_whole_help_shows_every_setting_once_the_main_ones_first(presets, default, module, capsys):
    with pytest.raises(SystemExit) as stop:
        parse(["--help-all"], "program", presets, default, module.preset_for)
    assert not stop.value.code
    text = capsys.readouterr().out
    assert "-\n" not in text  # no flag is broken
    shown = re.findall(r"^. --([a-z-]+)[ ,\n]", text, re.MULTILINE)
    settings = [*declared(type(presets[default])).values(), *declared(RunOptions).values()]
    assert sorted(shown) == sorted(setting.name.replace("_", "-") for setting in settings)
    main = [setting.name.replace("_", "-") for setting in settings if setting.main]
    assert shown[: len(main)] == main and 10 <= len(main) <= 15


@pytest.mark.parametrize(
    "config", [c for module in (ppo_presets, companions_presets, sac_presets) for c in module.PRESETS.values()]
)
def test_a_config_is_flat_and_what_json_holds_of_it_is_the_same_config(config):
    stored = json.loads(json.dumps(dataclasses.asdict(config)))
    assert not [
        name for name, value in stored.items() if isinstance(value, dict) and name not in ("env_kwargs", "mirror")
    ]
    assert type(config)(**stored) == config == config.replace()
    assert hash(config) == hash(config.replace())


NEEDED = {  # name → a value, and what makes it one without effect
    "reward_factor": (0.5, {"reward_design": "sign"}),
    "mirror": ({"action": [-1]}, {"symmetry": False}),
    "ou_dt": (0.3, {"exploration": "gaussian"}),
    "tau": (0.3, {"hard_update_every": 9}),
    "target_entropy": (0.3, {"learn_temperature": False}),
    "dropped_quantiles": (3, {"quantiles": 1}),
    "fall_cost": (("3",), {"reward_design": "sign"}),
    "average_weights": (0.3, {"best_metric": "total_reward"}),
    "precision": ("bfloat16", {"hidden_sizes": (8,)}),
    "confirming_margin": (0.5, {"stop_score": None}),
    "min_std": (0.1, {"initial_std": None}),
    "critic_learning_rate": (0.1, {"shared_torso": True}),
}


WHOLE_NEEDS = {what.name for kind in WHOLE for what in declared(kind).values() if what.needs is not None}


@pytest.mark.parametrize("name", sorted(WHOLE_NEEDS))
def test_a_setting_without_effect_is_refused(name):
    value, off = NEEDED[name]
    [(other, without)] = off.items()
    kinds = (SACConfig, OffPolicyConfig, PPOConfig)
    kind = next(kind for kind in kinds if name in declared(kind) and declared(kind)[name].needs)
    with pytest.raises(UserError, match=re.escape(f"has no effect with {other} {without}: add --")) as error:
        kind(**{name: value}, **off)
    assert str(error.value).startswith(f"{name} {value} ") and "\n" not in str(error.value)
    typed = ("no-" if value is False else "") + name.replace("_", "-")
    assert str(error.value).endswith(f", or leave --{typed} out")

    design = "outcome_bonus" if name.startswith("fall_cost") else "scaled"
    on = {"reward_design": design, "best_metric": "validation", "quantiles": 25, "exploration": "ornstein_uhlenbeck",
          "hard_update_every": 0, "initial_std": 1.0, "shared_torso": False,
          "stop_score": 300.0, "hidden_sizes": (8, 8)}.get(other, True)  # fmt: skip
    whole = {name: value, other: on}
    config = kind(**whole)
    assert config == kind(**dataclasses.asdict(config)) and getattr(config, name) == value
    assert config.replace(**off) == kind(**off)  # a preset's own, which nobody typed
    with pytest.raises(UserError, match="has no effect"):
        kind().replace(**{name: value}, **off)
    assert kind(**off).replace(**whole) == config


def test_a_json_object_may_hold_numbers_of_numpy():
    assert json_object("env_kwargs", {"gravity": np.float64(3.5)}) == {"gravity": 3.5}
    with pytest.raises(UserError, match="object cannot be stored; give make_env a function that has it"):
        json_object("env_kwargs", {"gravity": object()})


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("pendulum --validate-every 5", "validate_every 5 has no effect with best_metric mean_episode_reward"),
        ("pendulum --validate_from=0.1", "validate_from (0.1,) has no effect with best_metric mean_episode_reward"),
        ("cartpole --validation-episodes 7", "add --best-metric validation, or leave --validation-episodes out"),
        ("cartpole --stop-score 475 --confirming-margin 1", "confirming_margin 1.0 has no effect with best_metric"),
        ("bipedal-walker --value-coefficient 1", "value_coefficient 1.0 has no effect with shared_torso False"),
        ("bipedal-walker-fast --shared-torso --critic-learning-rate 0.002", "critic_learning_rate 0.002 has no"),
        ("pendulum --environment-time-limit 5", "environment_time_limit 5.0 has no effect with backend auto"),
    ],
)
def test_a_setting_that_was_typed_and_has_no_effect_is_refused(words, line):
    with pytest.raises(UserError, match=re.escape(line)):
        parse(words.split(), "program", ppo_presets.PRESETS, "bipedal-walker", ppo_presets.preset_for)


@pytest.mark.parametrize("flag", ["tau", "hard-update-every"])
@pytest.mark.parametrize("words", ["crossq", "sac --crossq", "pendulum-sac --crossq"])
def test_crossq_has_no_target_networks_to_move(words, flag):
    typed = [*words.split(), f"--{flag}", "1"]
    with pytest.raises(UserError, match=f"1.* has no effect with crossq True: add --no-crossq, or leave --{flag} out"):
        parse(typed, "program", sac_presets.PRESETS, "sac", sac_presets.preset_for)


@pytest.mark.parametrize(
    ("words", "changes"),
    [
        ("pendulum --validate-every 5 --best-metric validation", {"best_metric": "validation"}),
        ("pendulum --validate-every 7 --best-metric validation", {"best_metric": "validation", "validate_every": 7}),
        ("breakout --value-coefficient 1", {"value_coefficient": 1.0}),
        (
            "pendulum --environment-time-limit 5 --backend processes",
            {"environment_time_limit": 5.0, "backend": "processes"},
        ),
        ("pendulum --record", {}),
        ("cartpole", {}),  # whose preset has settings without effect
    ],
)
def test_a_setting_that_was_typed_and_has_an_effect_is_taken(words, changes):
    name, config, _ = parse(words.split(), "program", ppo_presets.PRESETS, "bipedal-walker", ppo_presets.preset_for)
    assert config == ppo_presets.PRESETS[name].replace(**changes)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--fall-costs", "1", "10"], "--fall-costs is no longer a setting: use --fall-cost 1 10@0"),
        (["--no-mirror-check"], """--no-mirror-check is no longer a setting: use --mirror '{"check": false}'"""),
        (["--std-decay", "0.9"], "--std-decay is no longer a setting: leave it out"),
    ],
)
def test_a_setting_that_was_renamed_or_removed_is_told(words, line):
    with pytest.raises(UserError) as error:
        parse(["pendulum", *words], "program", ppo_presets.PRESETS, "bipedal-walker", ppo_presets.preset_for)
    assert str(error.value).startswith(line) and "\n" not in str(error.value)
    flags = {f"--{name.replace('_', '-')}" for kind in WHOLE for name in declared(kind)}
    assert words[0] in REPLACED and not flags & REPLACED.keys()
