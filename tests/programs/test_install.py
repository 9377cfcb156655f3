"""What the notebook's first cell would install."""

import importlib.metadata
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from packaging.requirements import Requirement

from common.errors import UserError
from programs import install

NEEDED = install.read_requirements(install.ROOT / "requirements.txt")
TFP = ['tensorflow>=2.16; extra == "tf"', 'tf-keras>=2.16; extra == "tf"', "absl-py"]
BOX2D = ['box2d-py==2.3.5; extra == "box2d"', 'swig==4.*; extra == "box2d"', 'mujoco; extra == "mujoco"']
COLAB = {  # version, requirements
    "tensorflow": ("2.19.0", []),
    "tf-keras": ("2.19.0", []),
    "tensorflow-probability": ("0.25.0", TFP),
    "tensorboard": ("2.19.0", []),
    "gymnasium": ("1.2.0", BOX2D),
    **{
        name: ("99.0", [])
        for name in ("numpy", "scipy", "matplotlib", "imageio", "imageio-ffmpeg", "rich", "filelock", "cloudpickle")
    },
}


def looked_up(packages):
    def distribution(name):
        if name not in packages:
            raise importlib.metadata.PackageNotFoundError(name)
        version, requires = packages[name]
        return SimpleNamespace(version=version, requires=requires)

    return distribution


def missing(**changes):
    packages = COLAB | {name.replace("_", "-"): value for name, value in changes.items()}
    return install.missing(NEEDED, looked_up({name: value for name, value in packages.items() if value is not None}))


def test_nothing_is_read_that_is_no_package():
    names = [requirement.name for requirement in install.read_requirements(install.ROOT / "requirements" / "fast.txt")]
    assert names == ["envpool"]


def test_a_bare_machine_gets_everything():
    assert install.missing(NEEDED, looked_up({})) == [str(requirement) for requirement in NEEDED]


def test_only_what_is_missing_and_an_extra_without_its_packages():
    assert missing() == ["gymnasium[box2d]>=1.1", "tyro>=1.0", "threadpoolctl>=3.4"]
    with_box2d = missing(box2d_py=("2.3.5", []), swig=("4.3", []), tyro=("1.0", []), threadpoolctl=("3.6", []))
    assert with_box2d == []


def test_an_older_box2d_is_compiled():
    def compiles(**changes):
        return install.compiles_box2d(looked_up(COLAB | changes))

    assert compiles()
    assert not compiles(**{"box2d-py": ("2.3.5", [])})
    assert not compiles(gymnasium=("1.2.3", ['box2d==2.3.10; extra == "box2d"']))
    assert not install.compiles_box2d(looked_up({}))  # pip takes the newest


def test_swig_comes_before_what_is_compiled(monkeypatch, capsys):
    monkeypatch.setattr(install, "missing", lambda requirements: ["gymnasium[box2d]>=1.1"])
    monkeypatch.setattr(install, "compiles_box2d", lambda: True)
    monkeypatch.setattr(install.shutil, "which", lambda program: None)
    commands = []
    install.install_missing(run=pip(0, commands))
    assert [packages for packages, _ in commands] == [["swig"], ["gymnasium[box2d]>=1.1"]]


def test_pip_finds_swig_itself_and_not_its_wrapper(tmp_path, monkeypatch):
    monkeypatch.setattr(install.sysconfig, "get_path", lambda name: str(tmp_path))
    environments = []

    def run(command, env, **_):
        environments.append(env)
        return subprocess.CompletedProcess(command, 0, "", "")

    install.run_pip(["x"], run)
    library = tmp_path / "swig" / "data" / "share" / "swig" / "4.3"
    library.mkdir(parents=True)
    install.run_pip(["x"], run)
    without, with_swig = environments
    assert "SWIG_LIB" not in without and with_swig["SWIG_LIB"] == str(library)
    assert with_swig["PATH"] == f"{tmp_path / 'swig' / 'data' / 'bin'}:{without['PATH']}"


def test_a_recent_tensorflow_stays_and_its_companions_fit_it():
    assert "tf-keras~=2.19.0" in missing(tf_keras=None)
    assert "tf-keras~=2.19.0" in missing(tf_keras=("2.18.0", []))
    assert not any(name.startswith("tensorflow") for name in missing())


@pytest.mark.parametrize("old", ["2.15.0", "2.17.1"])
def test_an_old_tensorflow_is_replaced(old):
    assert "tensorflow>=2.18" in missing(tensorflow=(old, []))
    assert not any(name.startswith("tensorflow>") for name in missing(tensorflow=("2.18.0", [])))


def test_a_requirement_for_another_system_is_none():
    elsewhere = [Requirement('envpool~=1.2 ; platform_system == "Amiga"')]
    assert install.missing(elsewhere, looked_up(COLAB)) == []


def pip(code, commands):
    def run(command, **_):
        constraints = Path(command[command.index("--constraint") + 1]).read_text(encoding="utf-8")
        commands.append((command[command.index("--constraint") + 2 :], constraints))
        return subprocess.CompletedProcess(command, code, "", "no such package")

    return run


def test_pip_is_told_to_keep_what_is_there(monkeypatch, capsys):
    monkeypatch.setattr(install, "missing", lambda requirements: ["tyro>=0.9"] if len(requirements) > 1 else [])
    commands = []
    install.install_missing(envpool=True, run=pip(0, commands))
    [(packages, constraints)] = commands
    assert packages == ["tyro>=0.9"]
    assert f"tensorflow=={importlib.metadata.version('tensorflow')}\n" in constraints
    assert capsys.readouterr().out == "installing tyro>=0.9 ...\ninstalled tyro>=0.9\n"


def test_a_failure_is_told_and_envpool_can_be_done_without(monkeypatch, capsys):
    monkeypatch.setattr(install, "missing", lambda requirements: ["tyro>=0.9"])
    with pytest.raises(UserError, match="pip could not install tyro"):
        install.install_missing(run=pip(1, []))
    assert "no such package" in capsys.readouterr().out
    monkeypatch.setattr(install, "missing", lambda requirements: ["envpool"] if len(requirements) == 1 else [])
    install.install_missing(envpool=True, run=pip(1, []))
    assert "Gymnasium steps the environments" in capsys.readouterr().out


def test_here_everything_is_installed(capsys):
    install.install_missing(run=pip(1, []))
    assert capsys.readouterr().out == "everything is installed\n"
