"""A run folder from somebody else runs nothing, and nothing outside it is written, read or waited for."""

import contextlib
import errno
import functools
import io
import json
import os
import pickle
import shlex
import shutil
import signal
import socket
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from run_program import call

import PPOAgentTrainer as main_program
from common import arrays_file, files
from common.envs.environment import find_environment
from common.errors import UserError
from common.runs import checkpoint, finished, one_process, run_folder, session, trust
from ppo.config import PPOConfig
from ppo.live_settings import FILE as HYPERPARAMETERS
from ppo.live_settings import LiveHyperparameters
from programs import evaluate, export, methods, plot, train, tune
from programs.preset_files import read_preset

CONFIG = PPOConfig(env="Pendulum-v1", backend="gymnasium", num_envs=1, steps_per_epoch=8, minibatch_size=8, epochs=2)
SECONDS = 20  # a folder is read in a moment, or refused
pytestmark = pytest.mark.usefixtures("eager_module")


class Bomb:
    """Unpickling it makes a file."""

    def __init__(self, trap: Path) -> None:
        self._trap = trap

    def __reduce__(self) -> tuple:
        return open, (str(self._trap), "w")


def archive(*members: tuple[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as file:
        for name, content in members:
            file.writestr(name, content)
    return buffer.getvalue()


def npy(header: str, content: bytes = b"") -> bytes:
    header = header.ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + content


def array_of(shape: str, kind: object = "<f8", content: bytes = b"") -> bytes:
    return archive(("numbers.npy", npy(f"{{'descr': {kind!r}, 'fortran_order': False, 'shape': {shape}, }}", content)))


def overlapping() -> bytes:
    """An archive in which a thousand names share one array, as bombs do."""
    content = bytearray(archive(("a.npy", npy("{'descr': '|u1', 'fortran_order': False, 'shape': (9,), }", bytes(9)))))
    start = content.index(b"PK\x01\x02")
    entry, end = content[start : content.index(b"PK\x05\x06")], content[content.index(b"PK\x05\x06") :]
    end[8:12] = (1000).to_bytes(2, "little") * 2
    end[12:16] = (1000 * len(entry)).to_bytes(4, "little")
    return bytes(content[:start] + entry * 1000 + end)


@functools.cache
def arrays(trap: Path) -> dict[str, bytes]:
    """What may lie in place of an archive of arrays."""
    bomb, saved = pickle.dumps(Bomb(trap)), io.BytesIO()
    np.save(saved, np.array([Bomb(trap)], dtype=object), allow_pickle=True)
    zeros, packed = io.BytesIO(), io.BytesIO()
    np.save(zeros, np.zeros(4_000_000))
    np.savez(packed, numbers=np.array([Bomb(trap)], dtype=object))
    return {
        "nothing": b"",
        "a pickle": bomb,
        "a pickled array": saved.getvalue(),
        "an archive of pickles": packed.getvalue(),
        "a pickle with an array's name": archive(("numbers.npy", bomb)),
        "names that climb": archive(("../../executed", bomb), (str(trap), bomb)),
        "compressed zeros": archive(("a.npy", zeros.getvalue()), compression=zipfile.ZIP_DEFLATED),
        "one name twice": archive(("a.npy", npy("{}")), ("b.npy", npy("{}"))).replace(b"b.npy", b"a.npy"),
        "terabytes that are not there": array_of("(10000000000000,)"),
        "more than a shape can hold": array_of(f"(1{'0' * 40},)"),
        "a negative shape": array_of("(-1, -8)", content=bytes(64)),
        "code for a shape": array_of(f"(open({str(trap)!r}, 'w'),)"),
        "brackets within brackets": array_of("(" * 5000),
        "minus within minus": array_of("-" * 5000 + "1"),
        "a number of thousands of digits": array_of(f"(1{'0' * 5000},)"),
        "objects": array_of("(1,)", "|O", bytes(8)),
        "a void of gigabytes": array_of("(1,)", "|V2147483647"),
        "nothing, very often": array_of("(1000000000000,)", "|V0"),
        "fields": archive(
            ("a.npy", npy("{'descr': [('x', '<f8')], 'fortran_order': False, 'shape': (1,), }", bytes(8)))
        ),
        "arrays upon each other": overlapping(),
        "a table of contents without end": b"PK\x01\x02" * (arrays_file.MOST_ARRAYS + 1),
        "a Keras archive": archive(("config.json", b'{"class_name": "Lambda"}')),
    }


@functools.cache
def configs(trap: Path) -> dict[str, str]:
    """What may be written in config.json."""
    whole = {"preset": "pendulum", "method": "ppo", "config": {**vars(CONFIG)}}

    def with_settings(**changes: object) -> str:
        return json.dumps(whole | {"config": whole["config"] | changes})

    return {
        "nothing": "",
        "brackets": "[" * 100_000,
        "objects within objects": '{"a":' * 900 + "1" + "}" * 900,
        "a number of 400 digits": with_settings().replace('"num_envs": 1', '"num_envs": 1' + "0" * 400),
        "a float of 400 digits": with_settings().replace('"gamma": 0.99', '"gamma": 1' + "0" * 400),
        "a number of 5,000 digits": with_settings().replace('"seed": 0', '"seed": 1' + "0" * 5000),
        "infinity": with_settings(learning_rate=float("inf")),
        "no number": with_settings(epochs=float("nan")),
        "a list for a method": json.dumps(whole | {"method": []}),
        "a module beside the folder": with_settings(env="hostile.evil:X-v0"),
        "a module in runs": with_settings(env="runs.hostile.evil:X-v0"),
        "a module of Python's": with_settings(env="antigravity:X-v0"),
        "a file by its path": with_settings(env="../evil:X-v0"),
        "an environment of many lines": with_settings(env="Pendulum-v1\nerror: all is well\x1b[2J"),
        "another setting": with_settings(__class__="evil"),
        "a name that cannot be printed": json.dumps(whole | {"preset": "\udcff\x1b]0;evil\x07\n"}),
        "a module of arguments": with_settings(env_kwargs={"xml_file": str(trap)}),
        "a very long text": with_settings(env="x" * 1_000_000),
    }


TABLES = {
    "nothing": b"",
    "no epochs": b"epoch,steps,total_reward,avg_reward,avg_steps\n",
    "other columns": b"a,b\n1,2\n",
    "no text": bytes(range(256)) * 10,
    "a cell of a megabyte": b"epoch,steps,total_reward,avg_reward,avg_steps\n" + b"1" * 1_000_000 + b",1,1,1,1\n",
    "rows that differ": b"epoch,steps,total_reward,avg_reward,avg_steps\n1,1,1,1,1\n1,1\n",
    "more columns than headings": b"epoch,steps,total_reward,avg_reward,avg_steps\n1,1,1,1,1,1\n",
    "NUL": b"epoch,steps,total_reward,avg_reward,avg_steps\n\0\0\0\n",
    "quotes": b'epoch,steps,total_reward,avg_reward,avg_steps\n"\n' + b"1" * 200_000,
    "code": b"epoch,steps,total_reward,avg_reward,avg_steps\n=cmd|' /C calc'!A0,1,1,1,1\n",
}
LIVE = {
    "brackets": "[" * 100_000,
    "objects within objects": '{"values":' * 900 + "1" + "}" * 900,
    "a number of 400 digits": '{"values": {"passes": 1' + "0" * 400 + "}}",
    "a number of 5,000 digits": '{"values": {"clip_range": 1' + "0" * 5000 + "}}",
    "values are a list": '{"values": [1]}',
    "a name that cannot be printed": '{"values": {"\\ud800\\n": 1}}',
}
ENTRIES = (
    run_folder.CONFIG, run_folder.RESULTS, run_folder.FIGURE, run_folder.WEIGHTS, run_folder.BEST_AGENT,
    run_folder.EVALUATION, run_folder.VIDEO, run_folder.TENSORBOARD, run_folder.CHECKPOINTS, HYPERPARAMETERS,
    finished.FILE, one_process.LOCK, one_process.SOFT_LOCK, "export", "after-1-epochs",
    f"{run_folder.CHECKPOINTS}/00000001", f"{run_folder.CHECKPOINTS}/00000001/{checkpoint.STATE}",
    f"{run_folder.CHECKPOINTS}/00000001/{checkpoint.MANIFEST}", f"{run_folder.CHECKPOINTS}/.unfinished-00000002",
)  # fmt: skip
KINDS = ("link to a file", "link to a folder", "link to nothing", "link to a device", "pipe", "socket")


def plant(path: Path, kind: str, outside: Path) -> None:
    """Something in place of an entry of a run folder."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        here = Path.cwd()
        os.chdir(path.parent)  # their names are short
        try:
            with socket.socket(socket.AF_UNIX) as end:
                end.bind(path.name)
        finally:
            os.chdir(here)
    else:
        target = {"file": outside / "precious", "folder": outside / "folder", "nothing": outside / "new"}
        path.symlink_to(target.get(kind.split()[-1], Path("/dev/zero")))


def below(folder: Path) -> dict[Path, bytes | None]:
    """Every plain file with its content, and the rest by name."""
    return {path: path.read_bytes() if path.is_file() else None for path in sorted(folder.rglob("*"))}


def uses(run: Path) -> list:
    """Everything that is done with the folder of somebody else, but training."""
    live = LiveHyperparameters(CONFIG)
    return [
        lambda: live.watch(run),
        lambda: methods.read_config(run),
        lambda: run_folder.read_results(run),
        lambda: checkpoint.load_newest(run / run_folder.CHECKPOINTS, lambda _: None),
        lambda: arrays_file.read_weights(run / run_folder.BEST_AGENT, {"numbers": np.zeros(3)}, {}),
        lambda: arrays_file.read_weights(run / run_folder.WEIGHTS, {"numbers": np.zeros(3)}, {}),
        lambda: live.poll(),
        lambda: finished.is_done(run, finished.ADOPT, 2),
    ]


def writes(run: Path) -> list:
    """Everything that a run writes into its folder."""

    def save() -> None:
        checkpoint.save(run / run_folder.CHECKPOINTS, 2, {"numbers": np.zeros(3)}, keep=1)

    def replace(name: str):
        return lambda: files.replace_file(run / name, b"new")

    def locked() -> None:
        with one_process.only_here(run, lambda _: None):
            pass

    plain = (run_folder.CONFIG, run_folder.RESULTS, run_folder.FIGURE, run_folder.WEIGHTS, run_folder.BEST_AGENT)
    return [locked, save, *map(replace, plain), lambda: finished.set_aside(run, 1), lambda: locked()]


def in_one_line(use) -> None:
    """It works, or it is refused in one line that can be printed, and soon."""

    def too_long(*_):
        raise AssertionError("it waits")

    signal.signal(signal.SIGALRM, too_long)
    signal.alarm(SECONDS)
    try:
        use()
    except UserError as error:
        assert "\n" not in str(error) and len(str(error)) < 2000
    except OSError as error:  # which the programs tell in one line
        assert error.errno in (errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.ENOENT, errno.ELOOP)
    finally:
        signal.alarm(0)


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """A runs folder on the import path, and a place outside it that nothing may touch."""
    root = tmp_path_factory.mktemp("root")
    sys.path.append(str(root))
    yield root / "runs", root / "outside"
    sys.path.remove(str(root))


@st.composite
def folders(draw):
    """What is wrong with a run folder: one to four things."""
    wrong = st.one_of(
        st.tuples(st.just("entry"), st.sampled_from(ENTRIES), st.sampled_from(KINDS)),
        st.tuples(
            st.just("arrays"),
            st.sampled_from((run_folder.BEST_AGENT, run_folder.WEIGHTS, "state", "state with its checksum")),
            st.sampled_from(sorted(arrays(Path("x")))),
        ),
        st.tuples(st.just("config"), st.none(), st.sampled_from(sorted(configs(Path("x"))))),
        st.tuples(st.just("table"), st.none(), st.sampled_from(sorted(TABLES))),
        st.tuples(st.just("live"), st.none(), st.sampled_from(sorted(LIVE))),
        st.tuples(st.just("bytes"), st.sampled_from(ENTRIES), st.binary(max_size=300)),
    )
    return draw(st.lists(wrong, min_size=1, max_size=4))


def build(run: Path, trap: Path, outside: Path, wrongs) -> None:
    """A run folder with all that is wrong with it; its modules would make the trap."""
    run.mkdir(parents=True)
    (run / run_folder.CONFIG).write_text(json.dumps({"preset": "pendulum", "method": "ppo", "config": vars(CONFIG)}))
    (run / run_folder.RESULTS).write_text("epoch,steps,total_reward,avg_reward,avg_steps\n1,8,-1,-1,8\n")
    for name in (run_folder.WEIGHTS, run_folder.BEST_AGENT):
        arrays_file.write_weights(run / name, {"numbers": np.zeros(3)})
    checkpoint.save(run / run_folder.CHECKPOINTS, 1, {"numbers": np.zeros(3)}, keep=1)
    for module in ("evil.py", "__init__.py", "sitecustomize.py"):
        (run / module).write_text(f"open({str(trap)!r}, 'w')")
    for kind, where, what in wrongs:
        if kind == "entry":
            plant(run / where, what, outside)
            continue
        path = run / {"config": run_folder.CONFIG, "table": run_folder.RESULTS, "live": HYPERPARAMETERS}.get(kind, ".")
        if kind == "arrays":
            content = arrays(trap)[what]
            path = run / where
            if where.startswith("state"):
                path = run / run_folder.CHECKPOINTS / "00000001" / checkpoint.STATE
                manifest = path.with_name(checkpoint.MANIFEST)
                if "checksum" in where and manifest.is_file() and not manifest.is_symlink():
                    manifest.write_text(json.dumps(checkpoint.manifest(1, content)))
        else:
            content = {"table": TABLES, "config": configs(trap), "live": LIVE}.get(kind, {}).get(what, what)
            path = run / where if kind == "bytes" else path
        content = content if isinstance(content, bytes) else content.encode()
        linked = any(place.is_symlink() for place in (path, *path.parents))
        if (path.is_file() or not path.exists()) and path.parent.is_dir() and not linked:
            path.write_bytes(content)


@settings(max_examples=120, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(wrongs=folders())
@example(wrongs=[("config", None, "an environment of many lines")])
def test_a_folder_from_somebody_else_is_read_and_written_safely(places, wrongs):
    runs, outside = places
    for folder in places:
        shutil.rmtree(folder, ignore_errors=True)
    (outside / "folder").mkdir(parents=True)
    (outside / "precious").write_text("precious")
    (outside / "folder" / checkpoint.STATE).write_text("precious too")
    trap, run = outside.parent / "executed", runs / "hostile"
    build(run, trap, outside, wrongs)
    before = below(outside)
    for use in (*uses(run), *writes(run)):
        in_one_line(use)
    assert not trap.exists()
    assert below(outside) == before


@pytest.mark.parametrize("what", sorted(arrays(Path("x"))))
def test_arrays_that_are_none_are_refused_before_memory_is_taken(what, tmp_path):
    import tracemalloc

    content = arrays(tmp_path / "executed")[what]
    tracemalloc.start()
    with pytest.raises(ValueError, match=r"^[^\n]{1,200}$"):
        arrays_file.unpacked(content)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 5 * len(content) + 3_000_000
    assert not (tmp_path / "executed").exists()


def test_a_file_larger_than_the_memory_is_not_read(tmp_path):
    for name in (run_folder.BEST_AGENT, run_folder.RESULTS, run_folder.CONFIG):
        with open(tmp_path / name, "wb") as file:
            file.truncate(2**40)  # takes no room on the disk
    for read in (
        lambda: arrays_file.read_weights(tmp_path / run_folder.BEST_AGENT, {"a": np.zeros(2)}, {}),
        lambda: run_folder.read_results(tmp_path),
        lambda: methods.read_config(tmp_path),
    ):
        with pytest.raises(UserError, match=r"1,099,511,627,776 bytes, at most"):
            read()


TINY = "epoch,steps,total_reward,avg_reward,avg_steps\n"


@pytest.mark.parametrize(
    "table", [*TABLES.values(), *(f"{TINY}{n},{n},{n},{n},{n}\n".encode() for n in ("1e308", "-1e308", "nan", "inf"))]
)
def test_tables_are_drawn_or_refused(tmp_path, table):
    (tmp_path / run_folder.RESULTS).write_bytes(table)
    in_one_line(lambda: plot.draw("five", [tmp_path], (), "range").canvas.draw())


# -- modules --


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A runs folder on the import path with a run whose environment comes with a module; where that lies."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    made = tmp_path / "imported"

    def make(path: Path, env: str) -> tuple[Path, Path]:
        run = tmp_path / "runs" / "theirs"
        run.mkdir(parents=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            f"open({str(made)!r}, 'w')\nimport gymnasium\n"
            "gymnasium.register('Theirs-v0', 'gymnasium.envs.classic_control:PendulumEnv', max_episode_steps=9)\n",
            encoding="utf-8",
        )
        config = {"preset": "pendulum", "method": "ppo", "config": vars(CONFIG) | {"env": env, "hidden_sizes": [4]}}
        (run / run_folder.CONFIG).write_text(json.dumps(config))
        (run / run_folder.RESULTS).write_text("epoch,steps,total_reward,avg_reward,avg_steps\n1,8,-1,-1,8\n")
        (run / run_folder.WEIGHTS).write_bytes(b"")
        (run / run_folder.BEST_AGENT).write_bytes(b"")
        return run, made

    yield make
    for name in [name for name in sys.modules if name.split(".")[0] in ("runs", "their_module")]:
        del sys.modules[name]


def ways(run: Path, *typed: str) -> list[tuple]:
    return [
        (evaluate, run, *typed),
        (export, run, *typed),
        (plot, run, "--kind", "policy", "--output", run.parent.parent / "figure.png", *typed),
        (main_program, "--resume", run, *typed),
    ]


def test_a_module_of_a_stored_environment_is_imported_only_if_it_is_named_again(module, tmp_path, monkeypatch, capsys):
    env = "their_module:Theirs-v0"
    run, imported = module(tmp_path / "their_module.py", env)
    for program, *arguments in (*ways(run), *ways(run, "--env", "other_module:Theirs-v0")):
        assert call(monkeypatch, program, *arguments) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1 and f"--env {env}" in error
        assert not imported.exists()
    for program, *arguments in ways(run, "--env", env):
        call(monkeypatch, program, *arguments)  # its weights are no weights; resuming begins at the first epoch
        error = capsys.readouterr().err
        assert f"--env {env}" not in error, error
        assert imported.exists(), error


@pytest.mark.parametrize("where", ["path", "cwd", "elsewhere"])
def test_a_runs_folder_that_holds_the_users_own_modules_is_not_refused(tmp_path, monkeypatch, where):
    own = tmp_path / "runs" / "own"
    own.mkdir(parents=True)
    if where == "path":
        monkeypatch.syspath_prepend(str(own))
    elif where == "cwd":
        monkeypatch.chdir(own)
    trust.refuse_runs(tmp_path / "runs")
    assert trust.Refusal.folders == (set() if where != "elsewhere" else {tmp_path / "runs"})


def test_links_do_not_hide_where_a_module_lies(tmp_path):
    own, theirs = tmp_path / "own", tmp_path / "runs" / "theirs"
    own.mkdir()
    theirs.mkdir(parents=True)
    (theirs / "evil.py").touch()
    (own / "fine.py").touch()
    (own / "linked.py").symlink_to(theirs / "evil.py")
    (own / "folder").symlink_to(theirs)
    (theirs / "borrowed.py").symlink_to(own / "fine.py")
    trust.refuse(tmp_path / "runs")
    find = trust.Refusal.find_spec
    for name, place in (("fine", own), ("borrowed", theirs)):
        assert find(name, [str(place)]) is None
    for name, place in (("evil", theirs), ("linked", own), ("evil", own / "folder")):
        with pytest.raises(UserError, match=f"the module {name} lies in"):
            find(name, [str(place)])


@pytest.mark.parametrize("where", ["runs/theirs/evil.py", "runs/evil.py", "runs/theirs/__init__.py"])
def test_nothing_in_a_runs_folder_is_imported_even_if_it_is_named(module, tmp_path, monkeypatch, capsys, where):
    name = where.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    run, imported = module(tmp_path / where, f"{name}:Theirs-v0")
    for program, *arguments in ways(run, "--env", f"{name}:Theirs-v0"):
        assert call(monkeypatch, program, *arguments) == 2
        assert "nothing is imported from" in capsys.readouterr().err
        assert not imported.exists()
    assert call(monkeypatch, main_program, "--env", f"{name}:Theirs-v0", "--runs-folder", tmp_path / "runs") == 2
    assert not imported.exists()


def test_one_line_whatever_stands_in_a_folder(tmp_path, monkeypatch, capfd):
    for name, content in configs(tmp_path / "executed").items():
        run = tmp_path / "run"
        shutil.rmtree(run, ignore_errors=True)
        run.mkdir()
        (run / run_folder.CONFIG).write_bytes(content.encode(errors="surrogatepass"))
        assert call(monkeypatch, evaluate, run) == 2, name
        error = capfd.readouterr().err
        assert error.startswith("error: ") and error.count("\n") == 1 and "\x1b" not in error, name
        assert "Traceback" not in error and len(error) < 3000, name


def test_names_that_cannot_be_printed_are_one_line(tmp_path, monkeypatch, capfd):
    name = os.fsdecode(b"run\xff")
    for arguments in (("pendulum", "--name", name), ("--resume", tmp_path / name), ("pendulum", "--name", "a\nb")):
        assert call(monkeypatch, main_program, *arguments, "--runs-folder", tmp_path / "runs") == 2
        assert capfd.readouterr().err.count("\n") == 1
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("program", [train, tune])
def test_a_module_that_a_preset_file_names_is_imported_only_if_it_is_typed(
    module, tmp_path, monkeypatch, capsys, program
):
    env = "their_module:Theirs-v0"
    _, imported = module(tmp_path / "their_module.py", env)
    preset = tmp_path / "runs" / "theirs" / run_folder.CONFIG
    assert call(monkeypatch, program, preset) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and f"--env {env}" in error
    make_env = find_environment
    monkeypatch.setattr(session, "run", lambda make, preset, config, options, **_: make_env(config.env))
    monkeypatch.setattr(tune, "read_space", lambda path, base: make_env(base.env))
    with contextlib.suppress(Exception):  # what follows the environment does not matter here
        call(monkeypatch, program, preset, "--env", "Pendulum-v1")  # in place of the file's
    assert not imported.exists()
    with contextlib.suppress(Exception):
        call(monkeypatch, program, preset, "--env", env)
    assert imported.exists()


@pytest.mark.parametrize("program", [train, tune])
def test_a_module_beside_a_preset_file_is_not_imported(module, tmp_path, monkeypatch, capsys, program):
    env = "presets.their_module:Theirs-v0"
    run, imported = module(tmp_path / "presets" / "their_module.py", env)
    preset = shutil.copy(run / run_folder.CONFIG, tmp_path / "presets" / "mine.json")
    assert call(monkeypatch, program, preset, "--env", env) == 2
    assert "beside a run or a preset file, and nothing is imported from there" in capsys.readouterr().err
    assert not imported.exists()


def test_texts_that_a_preset_file_gives_to_its_environment_must_be_typed(tmp_path, monkeypatch, capsys):
    kwargs = {"map_name": "4x4"}
    content = {"method": "ppo", "config": {"env": "FrozenLake-v1", "env_kwargs": kwargs}}
    (tmp_path / "preset.json").write_text(json.dumps(content))
    for program in (train, tune):
        assert call(monkeypatch, program, tmp_path / "preset.json") == 2
        asked = shlex.split(capsys.readouterr().err.split(" with ", 1)[1])
        assert asked == ["--env", "FrozenLake-v1", "--env-kwargs", json.dumps(kwargs)]
        assert read_preset(tmp_path / "preset.json", env=asked[1], env_kwargs=asked[3])[2].env_kwargs == kwargs
        assert call(monkeypatch, program, tmp_path / "preset.json", "--env", "CartPole-v1") == 2
        assert "type --env-kwargs with what CartPole-v1 needs ('{}' is nothing)" in capsys.readouterr().err
    for typed in ("{}", '{"map_name": "8x8"}'):  # in place of the file's
        read_preset(tmp_path / "preset.json", env="CartPole-v1", env_kwargs=typed)
        read_preset(tmp_path / "preset.json", env_kwargs=typed)
