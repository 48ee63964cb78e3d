"""One target under atheris, in its own process: `python -m tests.fuzz.guided TARGET KERNELS [OPTIONS of libFuzzer]`.

The plain Python of the target's modules is instrumented. Machine code is only loaded from the cache, because the
compiler cannot compile instrumented functions. Names of cache files depend on the functions in memory, and
instrumentation changes these. So the file KERNELS contains their paths.
"""

from __future__ import annotations

import gc
import json
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.fuzz.targets import TARGETS

INSTRUMENTED = ["capture", "lowlevel", "queries"]


def write_paths(kernels: Iterable[Any], file: Path) -> None:
    """Write down where the machine code of kernels is that are not instrumented."""
    file.write_text(json.dumps({_identity(each): str(each.path()) for each in kernels}))


def _identity(kernel: Any) -> str:
    return f"{kernel.function.__module__}.{kernel.name}"


def _find_kernels(file: Path) -> None:
    from capture.native import Kernel

    paths = json.loads(file.read_text())

    def compile_here(kernel: Kernel) -> None:
        raise RuntimeError(f"{_identity(kernel)} would be compiled instrumented: {kernel.path()} is missing or harmed")

    Kernel.path = lambda kernel: Path(paths[_identity(kernel)])
    Kernel.compile = compile_here


def main() -> None:
    """Fuzz until there is a finding or the options say that it is enough."""
    import atheris

    target = TARGETS[sys.argv[1]]
    with atheris.instrument_imports(include=INSTRUMENTED):
        module = target.load()
    _find_kernels(Path(sys.argv[2]))
    arguments = [sys.argv[0], *sys.argv[3:]]
    with tempfile.NamedTemporaryFile("w", suffix=".dict") as file:
        if words := getattr(module, "WORDS", ()):  # libFuzzer ends at once over an empty dictionary
            file.writelines('"{}"\n'.format("".join(f"\\x{byte:02x}" for byte in word.encode())) for word in words)
            file.flush()
            arguments.append(f"-dict={file.name}")
        gc.freeze()  # modules stay; to look at them again and again takes a twentieth of the time
        atheris.Setup(arguments, module.check)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
