"""Make the peers' environments and model files, outside of the repository. What is there already stays.

    python -m benchmarks.setup_peers                        # all peers
    python -m benchmarks.setup_peers --peers llama,vllm
    python -m benchmarks.setup_peers --environments DIR     # not ~/.cache/offramp-peers

A peer that can't be installed here is named at the end, and the exit code is 1; the others are usable.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import venv
from pathlib import Path

from benchmarks import make_models
from benchmarks.environment import DEFAULT_ENVIRONMENTS, PEERS, env_python

REQUIREMENTS = Path(__file__).with_name("environments")
TORCH = "torch==2.13.0"
FIRST = {"transformers": TORCH, "onnxruntime": TORCH, "vllm": TORCH}
"""What a peer needs installed before and apart from its requirements."""
REMOVED = {"vllm": ("torchvision", "torchaudio", "torchcodec")}
"""What its requirements bring and it does not start with."""


def set_up(environments: Path, peer: str) -> None:
    """One environment, from its requirements file. Raises CalledProcessError."""
    done = environments / peer / "installed.txt"
    if done.exists():
        return
    print(f"{peer}: installing", flush=True)
    venv.create(environments / peer, with_pip=True)
    pip = [str(env_python(environments, peer)), "-m", "pip"]
    if peer in FIRST:
        subprocess.run([*pip, "install", "-q", FIRST[peer]], check=True)
    subprocess.run([*pip, "install", "-q", "-r", str(REQUIREMENTS / f"{peer}.txt")], check=True)
    if peer in REMOVED:
        subprocess.run([*pip, "uninstall", "-q", "-y", *REMOVED[peer]], check=True)
    freeze = subprocess.run([*pip, "freeze"], check=True, capture_output=True, text=True).stdout
    done.write_text(freeze)  # last: with it the environment is whole


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the peers' environments and model files.")
    parser.add_argument("--environments", type=Path, default=DEFAULT_ENVIRONMENTS)
    parser.add_argument("--peers", default=",".join(PEERS), help=f"default: {','.join(PEERS)}")
    parser.add_argument("--model", default=make_models.DEFAULT_MODEL, help="the Q4_1 GGUF file, or its short name")
    args = parser.parse_args()
    environments, peers = args.environments.expanduser().resolve(), args.peers.split(",")
    if not set(peers) <= set(PEERS):
        parser.error(f"--peers takes {', '.join(PEERS)}")
    failed: list[str] = []
    for peer in peers:
        try:
            set_up(environments, peer)
        except subprocess.CalledProcessError as error:
            failed.append(f"{peer} ({' '.join(error.cmd[3:])})")
    try:
        make_models.make_models(environments, args.model)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        failed.append(f"the ONNX model ({error})")
    for what in failed:
        print(f"not set up: {what}", file=sys.stderr)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
