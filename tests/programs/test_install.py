"""What the notebook's first cell would install."""

import importlib.metadata
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
    install.install_missing(popen=pip(0, commands))
    assert [packages for packages, _ in commands] == [["swig"], ["gymnasium[box2d]>=1.1"]]


def test_pip_finds_swig_itself_and_not_its_wrapper(tmp_path, monkeypatch):
    monkeypatch.setattr(install.sysconfig, "get_path", lambda name: str(tmp_path))
    environments = []

    def popen(command, env, **_):
        environments.append(env)
        return Pip()

    install.run_pip(["x"], popen)
    library = tmp_path / "swig" / "data" / "share" / "swig" / "4.3"
    library.mkdir(parents=True)
    install.run_pip(["x"], popen)
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


class Pip:
    """Stands for pip's process."""

    def __init__(self, code=0, lines=()):
        self.returncode, self.stdout, self.killed = code, lines, False

    def __enter__(self):
        return self

    def __exit__(self, *problem):
        pass

    def kill(self):
        self.killed = True


def pip(code, commands, lines=("no such package\n",)):
    def popen(command, **_):
        constraints = Path(command[command.index("--constraint") + 1]).read_text(encoding="utf-8")
        commands.append((command[command.index("--constraint") + 2 :], constraints))
        return Pip(code, lines)

    return popen


def test_pip_is_told_to_keep_what_is_there(monkeypatch, capsys):
    monkeypatch.setattr(install, "missing", lambda requirements: ["tyro>=0.9"] if len(requirements) > 1 else [])
    commands = []
    install.install_missing(envpool=True, popen=pip(0, commands))
    [(packages, constraints)] = commands
    assert packages == ["tyro>=0.9"]
    assert f"tensorflow=={importlib.metadata.version('tensorflow')}\n" in constraints
    assert capsys.readouterr().out == "installing tyro>=0.9 ...\ninstalled tyro>=0.9\n"


def test_a_failure_is_told_and_envpool_can_be_done_without(monkeypatch, capsys):
    monkeypatch.setattr(install, "missing", lambda requirements: ["tyro>=0.9"])
    with pytest.raises(UserError, match="pip could not install tyro"):
        install.install_missing(popen=pip(1, []))
    assert "no such package" in capsys.readouterr().out
    monkeypatch.setattr(install, "missing", lambda requirements: ["envpool"] if len(requirements) == 1 else [])
    install.install_missing(envpool=True, popen=pip(1, []))
    assert "Gymnasium steps the environments" in capsys.readouterr().out


def test_here_everything_is_installed(capsys):
    install.install_missing(popen=pip(1, []))
    assert capsys.readouterr().out == "everything is installed\n"


DOWNLOADS = """\
Collecting tensorflow>=2.18
  Downloading tensorflow-2.19.0-cp311-cp311-manylinux_2_17_x86_64.whl.metadata (4.1 kB)
Collecting absl-py
Downloading tensorflow-2.19.0-cp311-cp311-manylinux_2_17_x86_64.whl (644.9 MB)
Progress 0 of 644900000
Progress 322450000 of 644900000
Downloading https://example.org/packages/ale_py-0.11.tar.gz (1.2 MB)
Progress 100 of 0
  Building wheel for box2d-py (pyproject.toml): started
Installing collected packages: absl-py, ale-py, tensorflow
Successfully installed all of them
""".splitlines(keepends=True)


def test_one_line_shows_every_download(monkeypatch, capsys):
    assert install.run_pip(["tensorflow"], pip(0, [], DOWNLOADS)) == 0
    out = capsys.readouterr().out
    assert "\n" not in out
    assert [shown.strip() for shown in out.split("\r")] == [
        "",
        "finding the versions that fit together",
        "package 1: tensorflow 2.19.0, 644.9 MB",
        "package 1: tensorflow 2.19.0, 644.9 MB, 0%",
        "package 1: tensorflow 2.19.0, 644.9 MB, 50%",
        "package 2: ale-py 0.11, 1.2 MB",
        "building box2d-py",
        "unpacking 3 packages",
        "",
        "",
    ]
    assert len({len(shown) for shown in out.split("\r") if shown}) == 1  # each covers the one before


def test_where_pip_fails_its_output_is_shown_without_progress(capsys):
    assert install.run_pip(["tensorflow"], pip(1, [], [*DOWNLOADS, "ERROR: no room\n"])) == 1
    after = capsys.readouterr().out.rsplit("\r", 1)[1]
    assert after.startswith("Collecting tensorflow") and "ERROR: no room" in after and "Progress " not in after


@pytest.mark.parametrize(("version", "bar"), [("23.2.1", "off"), ("24.1", "raw"), ("25.0", "raw")])
def test_only_a_recent_pip_tells_its_bytes(version, bar, monkeypatch):
    monkeypatch.setattr(importlib.metadata, "distribution", looked_up({"pip": (version, [])}))
    commands = []
    install.run_pip(["x"], lambda command, **_: commands.append(command) or Pip())
    assert commands[0][commands[0].index("--progress-bar") + 1] == bar


def test_the_stop_button_ends_pip():
    def lines():
        yield "Collecting x"
        raise KeyboardInterrupt

    process = Pip(0, lines())
    with pytest.raises(KeyboardInterrupt):
        install.run_pip(["x"], lambda command, **_: process)
    assert process.killed


def test_the_size_of_envpool_is_told_before_it_is_downloaded(monkeypatch, capsys):
    monkeypatch.setattr(install, "missing", lambda requirements: ["envpool"] if len(requirements) == 1 else [])
    install.install_missing(envpool=True, popen=pip(0, []))
    assert capsys.readouterr().out == (
        "installing EnvPool, 770 MB on disk, in several downloads ...\ninstalled envpool\n"
    )
    measured = (install.ROOT / "benchmarks" / "results" / "envpool_size.txt").read_text(encoding="utf-8")
    [size] = [int(line.split()[0]) for line in measured.splitlines() if line.endswith("together")]
    assert round(size / 1e7) * 10 == install.ENVPOOL_MEGABYTES
