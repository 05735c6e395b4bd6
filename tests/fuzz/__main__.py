"""The coverage-guided fuzzer: ``python -m tests.fuzz sp --seconds 60``.

Atheris (libFuzzer) mutates the inputs of ``tests/fuzz/corpus/`` and goes on from those that reach new code of
ours. An input that breaks a rule is written to ``tests/fuzz/found/``, told, and makes the exit status 1.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.fuzz.corpus import CORPUS, CRASHES, HERE, load, store, unpack
from tests.fuzz.targets import TARGETS, load_all, low_thresholds

SIZE_MAX = 1024


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", choices=[*TARGETS, []], help="which decoders; default: all")
    parser.add_argument("--seconds", type=int, default=0, help="stop each target after this long")
    parser.add_argument("--runs", type=int, default=-1, help="stop each target after this many inputs")
    parser.add_argument("--seed", type=int, default=0, help="of the mutations; 0: another each time")
    parser.add_argument("--blank", action="store_true", help="begin with nothing instead of the corpus")
    parser.add_argument("--keep", action="store_true", help="add to the corpus what reached new code")
    parser.add_argument("--found", type=Path, default=HERE / "found", help="where breaking inputs go")
    parser.add_argument("--replay", type=Path, help="run one input (or .txt of inputs), without the fuzzer")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    options = arguments(argv)
    chosen: list[str] = options.targets or list(TARGETS)
    if options.replay is not None:
        return replay(chosen, options.replay)
    return max(fuzz(target, options) for target in chosen)


def replay(targets: Sequence[str], file: Path) -> int:
    load_all()
    inputs = load(file) if file.suffix == ".txt" else [file.read_bytes()]
    with low_thresholds():
        for target in targets:
            for data in inputs:
                TARGETS[target](data)
    print(f"{len(inputs)} inputs keep the rules of {', '.join(targets)}")
    return 0


def fuzz(target: str, options: argparse.Namespace) -> int:
    """Run libFuzzer in a process of its own; 1 if it found something."""
    options.found.mkdir(parents=True, exist_ok=True)
    corpus = CORPUS / f"{target}.txt"
    begin_with = [] if options.blank else load(corpus) + load(CRASHES / f"{target}.txt")
    with tempfile.TemporaryDirectory() as scratch:
        new, known = Path(scratch) / "new", Path(scratch) / "known"
        unpack([], new)
        unpack([], known)
        unpack(begin_with, new if options.keep else known)  # what is in the first it may replace by shorter
        flags = [f"-max_len={SIZE_MAX}", "-timeout=10", "-rss_limit_mb=1024"]
        flags += [f"-runs={options.runs}", f"-max_total_time={options.seconds}", f"-seed={options.seed}"]
        folders = [str(new)] if options.keep else [str(new), str(known)]
        ended = guided(target, *flags, f"-artifact_prefix={options.found}/{target}-", *folders)
        if options.keep and ended == 0:
            kept = store(corpus, (file.read_bytes() for file in new.iterdir()), f"What {target} begins with.")
            print(f"{target}: {kept} inputs kept in {corpus.relative_to(HERE.parent.parent)}")
    if ended != 0:
        print(f"{target}: broken; the input is in {options.found}/. To see it again:", file=sys.stderr)
        print(f"  python -m tests.fuzz {target} --replay {options.found}/{target}-crash-...", file=sys.stderr)
    return int(ended != 0)


def guided(target: str, *flags: str) -> int:
    return subprocess.run([sys.executable, "-m", "tests.fuzz.guided", target, *flags], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
