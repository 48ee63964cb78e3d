"""The wheel, and the public names of the module `wiretide`.

It can catch modules that the wheel lacks or that do not belong into it, and names that cannot be imported.
"""

import pydoc
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import wiretide

ROOT = Path(wiretide.__file__).parent
FOLDERS = ("capture", "lowlevel", "highlevel", "queries", "dashboards")


@pytest.mark.slow("builds a wheel")
def test_the_wheel_contains_the_five_folders_and_wiretide_only(tmp_path: Path) -> None:
    sources = tmp_path / "sources"
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )
    wanted = {"wiretide.py"}
    for name in filter(None, tracked):
        if name.startswith((*(f"{folder}/" for folder in FOLDERS), "bench/")) or "/" not in name:
            target = sources / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / name).exists():  # a file that is deleted but not committed
                target.write_bytes((ROOT / name).read_bytes())
                wanted |= {name} if name.startswith(FOLDERS) else set()
    build = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        tmp_path,
        sources,
    ]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("wiretide-*.whl")
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert names == wanted


def test_public_names_can_be_imported_and_are_described() -> None:
    for name in wiretide.__all__:
        assert getattr(wiretide, name) is not None
        assert name in dir(wiretide)
    text = pydoc.plain(pydoc.render_doc(wiretide))
    assert all(name in text for name in wiretide.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = wiretide.Nothing  # type: ignore[attr-defined]
    with pytest.raises(wiretide.QueryError, match="expected"):
        wiretide.explain("SELECT")


WITHOUT = """
import sys
class Hidden:
    def find_spec(self, name, *_):
        if name.split(".")[0] in ("pyspark", "pandas", "jdk", "google"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Hidden())
import wiretide
print(wiretide.explain("SELECT count(*) FROM packets").splitlines()[0])
try:
    wiretide.query("SELECT count(*) FROM packets", sys.argv[1], on="local")
except wiretide.MissingPackageError as error:
    print(error)
from capture.kernel_compilation import declare_kernels
declare_kernels()  # of `wiretide doctor`
"""


def test_without_spark_only_the_engines_of_spark_are_missing(tmp_path: Path) -> None:
    (tmp_path / "a.pcap").write_bytes(bytes.fromhex("d4c3b2a1020004000000000000000000ffff000001000000"))
    command = [sys.executable, "-c", WITHOUT, str(tmp_path / "a.pcap")]
    run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
    assert run.stdout.splitlines() == [
        "query query: SELECT count(*) FROM packets",
        "an engine other than inline requires pyspark, which is not installed: pip install 'wiretide[spark]'",
    ]
