"""Run notebooks of the guide in a kernel of their own.

As a program, `python -m tests.documents.notebooks NOTEBOOK`, it runs the notebook in the current folder and prints it
with the new outputs. The tests start this program, because the packages of Jupyter emit warnings.
"""

import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat

from tests.documents.terminal import COMPILING, environment


def executed(notebook: Path, folder: Path) -> Any:
    """Run a notebook in `folder` and return it with the new outputs. Raises RuntimeError if a cell fails."""
    settings = {"IPYTHONDIR": str(folder / ".ipython"), "JUPYTER_RUNTIME_DIR": str(folder / ".jupyter")}
    done = subprocess.run(
        [sys.executable, "-m", __name__, str(notebook)],
        cwd=folder, env=environment() | settings, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(done.stderr)
    return nbformat.reads(done.stdout, as_version=4)


def record(notebook: Path, folder: Path) -> None:
    """Run a notebook and write the outputs into it. The notebook keeps its metadata, without the version of Python."""
    metadata = nbformat.read(notebook, as_version=4).metadata
    recorded = executed(notebook, folder)
    recorded.metadata = metadata
    nbformat.write(recorded, notebook)


def texts(notebook: Any) -> list[str]:
    """Return the printed text and the text of the value of every code cell."""
    return [
        COMPILING.sub("", "".join(output.get("text") or output["data"]["text/plain"] for output in cell.outputs))
        for cell in code_cells(notebook)
    ]


def images(notebook: Any) -> list[str]:
    """Return the images of all cells, in base64."""
    outputs = [output for cell in code_cells(notebook) for output in cell.outputs]
    return [output["data"]["image/png"] for output in outputs if "image/png" in output.get("data", {})]


def code_cells(notebook: Any) -> list[Any]:
    """Return the cells with code."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def main() -> None:
    """Run the notebook of the command line and print it."""
    from nbclient import NotebookClient

    notebook: Any = nbformat.read(sys.argv[1], as_version=4)
    NotebookClient(notebook, kernel_name="python3", record_timing=False).execute()
    nbformat.write(notebook, sys.stdout)


if __name__ == "__main__":
    main()
