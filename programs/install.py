"""Installs the packages that the notebook needs and does not find; its first cell calls `install_missing`.

Before pip has run, this module imports only the standard library and `packaging`, of which pip has a copy.
"""

import importlib
import importlib.metadata
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from common.errors import UserError
from programs.pip_progress import run_showing_progress

try:
    from packaging.requirements import Requirement
except ImportError:  # a bare environment has pip's own copy only
    from pip._vendor.packaging.requirements import Requirement  # type: ignore[assignment]

ROOT = Path(__file__).resolve().parent.parent
KEPT = ("tensorflow", "keras", "numpy")  # replacing one of these in a running notebook breaks the others
ENVPOOL_MEGABYTES = 770  # benchmarks/results/envpool_size.txt
OLDEST_TENSORFLOW = (2, 18)  # the oldest that is tested, and that TensorFlow Probability 0.25 works with

Distribution = Callable[[str], importlib.metadata.Distribution]


def install_missing(envpool: bool = False, popen: Callable = subprocess.Popen) -> None:
    """Install what the notebook needs; packages that are recent enough are kept. One line shows every download.

    Args:
        envpool: also install EnvPool; if that fails, Gymnasium steps the environments.
        popen: `subprocess.Popen`; tests replace it.

    Raises:
        UserError: pip could not install what is needed.
    """
    needed = missing(read_requirements(ROOT / "requirements.txt"))
    if needed:
        print(f"installing {', '.join(needed)} ...", flush=True)
    if compiles_box2d() and shutil.which("swig") is None:
        run_pip(["swig"], popen)
    if needed and run_pip(needed, popen):
        raise UserError(f"pip could not install {' '.join(needed)}: its lines above say why")
    if envpool:
        needed += _install_envpool(popen)
    importlib.invalidate_caches()
    print(f"installed {', '.join(needed)}" if needed else "everything is installed")


def _install_envpool(popen: Callable) -> list[str]:
    """Install EnvPool if it is missing; returns what was installed."""
    pool = missing([r for r in read_requirements(ROOT / "requirements" / "fast.txt") if r.name == "envpool"])
    if not pool:
        return []
    print(f"installing EnvPool, {ENVPOOL_MEGABYTES} MB on disk, in several downloads ...", flush=True)
    if run_pip(pool, popen):
        print("EnvPool cannot be installed here: Gymnasium steps the environments, at a sixth of the speed")
        return []
    return pool


def read_requirements(path: Path) -> list[Requirement]:
    """The packages that a requirements file names itself, without those of other files that it includes."""
    lines = (line.split("#")[0].strip() for line in path.read_text(encoding="utf-8").splitlines())
    return [Requirement(line) for line in lines if line and not line.startswith("-")]


def missing(
    requirements: list[Requirement], distribution: Distribution = importlib.metadata.distribution
) -> list[str]:
    """The arguments for pip by which the requirements are met and a usable TensorFlow is kept.

    TensorFlow 2.18 and newer is kept. tf-keras, which TensorFlow Probability needs, must have TensorFlow's own minor
    version.

    Args:
        requirements: of this project.
        distribution: finds an installed package by name.
    """
    minor = _usable_tensorflow(distribution)
    if minor is None:
        return _unmet(requirements, distribution)
    kept = [requirement for requirement in requirements if requirement.name != "tensorflow"]
    keras = Requirement(f"tf-keras~={minor[0]}.{minor[1]}.0")
    return _unmet([*kept, keras], distribution)


def compiles_box2d(distribution: Distribution = importlib.metadata.distribution) -> bool:
    """Whether pip will compile Box2D, which needs SWIG; Gymnasium up to 1.2.2 requires that."""
    parts = _parts(Requirement("gymnasium[box2d]"), distribution)
    return any(part.name == "box2d-py" and not _met(part, distribution) for part in parts)


def _with_swig() -> dict[str, str]:
    """The environment with SWIG itself, if pip has installed it: its wrapper fails where pip builds in isolation."""
    swig = Path(sysconfig.get_path("platlib")) / "swig" / "data"
    library = next((swig / "share" / "swig").glob("*"), None)
    if library is None:
        return dict(os.environ)
    path = os.pathsep.join([str(swig / "bin"), os.environ.get("PATH", "")])
    return os.environ | {"PATH": path, "SWIG_LIB": str(library)}


def _usable_tensorflow(distribution: Distribution) -> tuple[int, int] | None:
    """The version of a TensorFlow that can be kept, like (2, 19); None if there is none or it is too old."""
    version = _version(distribution, "tensorflow")
    if version is None:
        return None
    major, minor = (int(part) for part in version.split(".")[:2])
    return (major, minor) if (major, minor) >= OLDEST_TENSORFLOW else None


def _unmet(requirements: list[Requirement], distribution: Distribution) -> list[str]:
    unmet = (r for r in requirements if not all(_met(part, distribution) for part in _parts(r, distribution)))
    return [str(requirement).split(";")[0].strip() for requirement in unmet]


def _parts(requirement: Requirement, distribution: Distribution) -> Iterator[Requirement]:
    """A requirement and, if it is installed, the requirements of its extras."""
    if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
        return
    yield requirement
    try:
        named = distribution(requirement.name).requires or []
    except importlib.metadata.PackageNotFoundError:
        return
    for part in map(Requirement, named):
        if part.marker is not None and not part.marker.evaluate({"extra": ""}):
            wanted = any(part.marker.evaluate({"extra": extra}) for extra in requirement.extras)
            if wanted:
                yield part


def _met(requirement: Requirement, distribution: Distribution) -> bool:
    version = _version(distribution, requirement.name)
    return version is not None and requirement.specifier.contains(version, prereleases=True)


def _version(distribution: Distribution, name: str) -> str | None:
    try:
        return distribution(name).version
    except importlib.metadata.PackageNotFoundError:
        return None


def run_pip(packages: list[str], popen: Callable = subprocess.Popen) -> int:
    """Run pip and return its exit code; its output is shown if it fails. With a usable TensorFlow, `KEPT` is kept."""
    here = importlib.metadata.distribution
    versions = {name: _version(here, name) for name in KEPT} if _usable_tensorflow(here) else {}
    bar = "raw" if _met(Requirement("pip>=24.1"), here) else "off"  # raw: numbers that a program can read
    with tempfile.TemporaryDirectory() as folder:
        constraints = Path(folder) / "constraints.txt"
        kept = "".join(f"{name}=={version}\n" for name, version in versions.items() if version)
        constraints.write_text(kept, encoding="utf-8")
        options = ["--progress-bar", bar, "--disable-pip-version-check", "--constraint", str(constraints)]
        command = [sys.executable, "-m", "pip", "install", *options, *packages]
        code, printed = run_showing_progress(command, _with_swig(), popen)
    if code:
        print(printed)
    return code
