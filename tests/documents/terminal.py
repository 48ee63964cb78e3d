"""Runs the commands and Python blocks of documents in a folder, most of them in one process that is already warm.

If this module is started as a program, it is that process. It reads requests from standard input, one JSON value per
line, and answers with status and output. A command with a pipe or a redirection is left to a shell.
"""

import contextlib
import io
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.documents.blocks import ROOT, Command

TERMINAL = {"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb", "TMPDIR": tempfile.gettempdir()}
COMPILING = re.compile(r"^wiretide: first run on this machine: .*\n", re.MULTILINE)


def environment() -> dict[str, str]:
    """Return the present environment, with the commands of this Python and a terminal of a fixed width."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return os.environ | TERMINAL | {"PATH": path, "PYTHONPATH": str(ROOT)}


class Terminal:
    """Runs what documents show, in `folder`, which may be replaced by another one."""

    def __init__(self, folder: Path) -> None:
        """Start the process that commands run in."""
        self.folder = folder
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            cwd=ROOT, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def close(self) -> None:
        """End the process."""
        self._process.communicate()

    def run(self, command: Command) -> str:
        """Run a command and return its output. `cat FILE` of a file that does not exist writes the file as shown."""
        words = shlex.split(command.text.replace("\\\n", " "))
        if words[0] == "cat" and len(words) == 2 and not (self.folder / words[1]).exists():
            (self.folder / words[1]).write_text(command.output + "\n", "utf-8")
            return command.output
        if words[0] == "wiretide" and not command.needs_spark and not {"|", ">", "<", "&&"} & set(words):
            return self._ask({"words": words})
        done = subprocess.run(
            ["bash", "-c", command.text],
            cwd=self.folder, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            check=False,
        )  # fmt: skip
        return COMPILING.sub("", done.stdout)

    def run_python(self, code: str) -> str:
        """Run a block of Python after those before it, and return its output. Raises RuntimeError if it fails."""
        return self._ask({"code": code})

    def _ask(self, request: dict[str, Any]) -> str:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(request | {"folder": str(self.folder)}) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return COMPILING.sub("", answer["output"])


def serve() -> None:
    """Answer requests until standard input ends."""
    import traceback

    import pyarrow as pa

    import wiretide

    # Arrow looks for pandas once, and `wiretide query` hides pandas: blocks of Python would depend on commands.
    pa.scalar(0, pa.timestamp("ns")).as_py()
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    namespace: dict[str, Any] = {"__name__": "__main__"}
    finders = list(sys.meta_path)
    for line in sys.stdin:
        request = json.loads(line)
        os.chdir(request["folder"])
        answer = {}
        with tempfile.TemporaryFile() as sink, redirected(sink.fileno()):
            try:
                if "code" in request:
                    exec(compile(request["code"], "<document>", "exec"), namespace)
                else:
                    sys.argv = request["words"]
                    with contextlib.suppress(SystemExit):
                        wiretide.main()
            except Exception:
                answer["error"] = traceback.format_exc()
            sys.stdout.flush()
            sys.stderr.flush()
            sys.meta_path[:] = finders
            sink.seek(0)
            answer["output"] = io.TextIOWrapper(sink, "utf-8", newline="").read()
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


@contextlib.contextmanager
def redirected(descriptor: int) -> Any:
    """Send standard output and error to a descriptor."""
    saved = [os.dup(number) for number in (1, 2)]
    for number in (1, 2):
        os.dup2(descriptor, number)
    try:
        yield
    finally:
        for number, kept in zip((1, 2), saved, strict=True):
            os.dup2(kept, number)
            os.close(kept)


if __name__ == "__main__":
    serve()
