"""Run the numeric tests as other x86-64 machines would: other kernels, vector widths, thread counts and hash seeds.

    python tools/portable.py                      every machine below, one after the other
    python tools/portable.py Haswell Sandybridge  these only
    python tools/portable.py Haswell -- -k ridge  what follows -- goes to pytest, after the numeric folders

OpenBLAS (in numpy, scipy and faiss), numpy's own loops, PyTorch with oneDNN and MKL, and faiss choose their code by the
CPU that they find. Here they are told to find another one; OpenBLAS and numpy are asked whether they obeyed.
"""

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NUMERIC = [
    "src",
    *(f"tests/{part}" for part in ("audit", "crypto", "data", "dp", "learn", "metrics", "search", "sift")),
]
AVX2 = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "FAISS_SIMD_LEVEL": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
}
SSE4 = {
    "ATEN_CPU_CAPABILITY": "default",
    "FAISS_SIMD_LEVEL": "NONE",
    "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
    "ONEDNN_MAX_CPU_ISA": "SSE41",
}
AVX512_LOOPS = ("X86_V4", "AVX512_ICL", "AVX512_SPR", "AVX512_SKX", "AVX512_CLX", "AVX512_CNL")
AVX2_LOOPS = ("X86_V3", "AVX2", "FMA3")
# Name: variables of the environment, and the loops of numpy that are switched off.
MACHINES: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
    "Haswell": ({"OPENBLAS_CORETYPE": "Haswell", "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "1", **AVX2}, AVX512_LOOPS),
    "Zen": ({"OPENBLAS_CORETYPE": "Zen", "OMP_NUM_THREADS": "2", "PYTHONHASHSEED": "2", **AVX2}, AVX512_LOOPS),
    "Sandybridge": (
        {"OPENBLAS_CORETYPE": "Sandybridge", "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "3", **SSE4},
        AVX512_LOOPS + AVX2_LOOPS,
    ),
    "native": ({"OMP_NUM_THREADS": "2", "PYTHONHASHSEED": "4"}, ()),
}
PROBE = """
import json, numpy, scipy.linalg, torch
from numpy._core._multiarray_umath import __cpu_features__ as loops
from threadpoolctl import threadpool_info
blas = {library["architecture"] for library in threadpool_info() if library["internal_api"] == "openblas"}
print(json.dumps([sorted(blas), [name for name in loops if loops[name]], torch.backends.cpu.get_cpu_capability()]))
"""


def dispatched() -> set[str]:
    """Return the groups of vector instructions that this numpy can switch off on this CPU."""
    umath = import_module("numpy._core._multiarray_umath")
    return {name for name in umath.__cpu_dispatch__ if umath.__cpu_features__[name]}


def environment(machine: str) -> dict[str, str]:
    """Return the variables that make the libraries compute as on `machine`, or say which did not obey."""
    variables, switched_off = MACHINES[machine]
    off = sorted(dispatched().intersection(switched_off))
    chosen = {**os.environ, **variables, "NPY_DISABLE_CPU_FEATURES": " ".join(off)}
    found = subprocess.run([sys.executable, "-c", PROBE], env=chosen, check=True, capture_output=True, text=True).stdout
    blas, loops, torch = json.loads(found)
    print(
        f"{machine}: OpenBLAS {', '.join(blas)}; numpy without {', '.join(off) or 'nothing'}; torch {torch}", flush=True
    )
    core = variables.get("OPENBLAS_CORETYPE")
    if core and blas not in ([core], ["Haswell"] if core == "Zen" else [core]):  # Zen may share Haswell's kernels
        sys.exit(f"OpenBLAS was told to compute as {core} and computes as {', '.join(blas)}.")
    if stubborn := set(off).intersection(loops):
        sys.exit(f"numpy did not switch off {', '.join(sorted(stubborn))}.")
    return chosen


def cpu() -> str:
    """Return the name of the CPU underneath."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.split(": ")[1] for line in lines if line.startswith("model name")), platform.processor())


def outcomes(machines: Iterable[str], options: list[str]) -> Iterator[tuple[str, int, float]]:
    """Run the tests as on each machine; yield its name, pytest's exit code and the seconds it took."""
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist=worksteal", *NUMERIC, *options]
    for machine in machines:
        chosen, begun = environment(machine), time.monotonic()
        code = subprocess.run(command, env=chosen, cwd=ROOT).returncode
        yield machine, code, time.monotonic() - begun


def main() -> None:
    """Run, and end with one line per machine."""
    words = sys.argv[1:]
    names, options = (words[: words.index("--")], words[words.index("--") + 1 :]) if "--" in words else (words, [])
    if unknown := set(names) - set(MACHINES):
        sys.exit(f"unknown machine {', '.join(sorted(unknown))}. Known: {', '.join(MACHINES)}.")
    done = list(outcomes(names or MACHINES, options))
    print(f"\nOn {cpu()}:")
    for machine, code, seconds in done:
        print(f"  as {machine:12s} {'passed' if code == 0 else f'FAILED (exit {code})':18s} {seconds:5.0f} s")
    sys.exit(any(code for _, code, _ in done))


if __name__ == "__main__":
    main()
