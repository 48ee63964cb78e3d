"""One target under atheris, in a process of its own: `python -m tests.fuzz.guided TARGET [libFuzzer's options]`.

The plain Python of what the target reads is instrumented; machine code is loaded from the cache and never compiled
here, for the compiler would meet the instrumented functions.
"""

from __future__ import annotations

import sys
import tempfile

from tests.fuzz.targets import TARGETS

INSTRUMENTED = ["capture", "lowlevel", "queries"]


def main() -> None:
    """Fuzz until there is a finding or the options say that it is enough."""
    import atheris

    target = TARGETS[sys.argv[1]]
    with atheris.instrument_imports(include=INSTRUMENTED):
        module = target.load()
    with tempfile.NamedTemporaryFile("w", suffix=".dict") as words:
        for word in getattr(module, "WORDS", ()):
            words.write('"{}"\n'.format("".join(f"\\x{byte:02x}" for byte in word.encode())))
        words.flush()
        atheris.Setup([sys.argv[0], f"-dict={words.name}", *sys.argv[2:]], module.check)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
