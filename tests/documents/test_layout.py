"""The tree is the pipeline: proved by reading the sources, not by importing them.

Each folder imports only from itself and from folders to its left, and imports have no cycle. Only `highlevel/spark`
imports pyspark; only the traffic generator and the tests import packet libraries. The top folder contains no other
modules, and no file names the machine on which it was written.
"""

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PIPELINE = ["capture", "lowlevel", "highlevel", "queries", "dashboards", "wiretide"]
FREE = ["bench", "docs", "tests"]
TOP_FOLDERS = {".ci", ".github", *FREE, *PIPELINE[:-1]}
TOP_FILES = {
    *{".gitignore", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile", "README.md", "pyproject.toml"},
    *{"requirements.lock", "wiretide.py", "Containerfile", ".dockerignore"},
}
# A library, and the folders or files of the product that may import it.
CONFINED = {
    "pyspark": ["highlevel/spark/"],
    "py4j": ["highlevel/spark/"],
    "jdk": ["highlevel/spark/"],
    "boto3": ["highlevel/spark/remote/"],
    "scapy": ["capture/generate"],
    "dpkt": ["capture/packets/dpkt_headers.py"],
}
# A folder of the product, and the only folders of the product that may import it.
CONFINED_FOLDERS = {"highlevel.baselines": ["highlevel/baselines/", "highlevel/compare/"]}
# Somebody's folders, files as addresses, and the hosts that packages come from.
MACHINE = re.compile(
    r"(?<![\w.$})*-])/(?:home|root|Users|work)/[\w.]"
    r"|\bfile:///\w"
    r"|\b(?:pypi\.org|pythonhosted\.org|registry\.npmjs|(?:deb|security|archive)\.(?:debian|ubuntu)|repo1?\.maven)\b"
)


def files() -> list[str]:
    """Every file of the repository that is tracked or about to be, relative to the root."""
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    return sorted(name for name in names if name and (ROOT / name).is_file())


def imports(source: str) -> Iterator[tuple[int, str]]:
    """Line and dotted name of every import in `source`, inside functions too; a relative import starts with a dot."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, "." * node.level + (node.module or "")


def wrong_imports(name: str, source: str) -> list[str]:
    """Return one sentence for each forbidden import of file `name` with text `source`."""
    package = name.partition("/")[0].removesuffix(".py")
    wrong = []
    for line, module in imports(source):
        top = module.partition(".")[0]
        if not top:
            wrong.append(f"{name}:{line} imports {module}: write the whole name")
        elif top == "tests" and any(part.startswith("test_") for part in module.split(".")):
            wrong.append(f"{name}:{line} imports {module}: a test module; shared code belongs into its own module")
        elif package in FREE:
            continue
        elif top in FREE:
            wrong.append(f"{name}:{line} imports {module}: only for {' and '.join(FREE)} themselves")
        elif top in PIPELINE and PIPELINE.index(top) > PIPELINE.index(package):
            wrong.append(f"{name}:{line} imports {module}: {top} is to the right of {package}")
        elif top in CONFINED and not name.startswith(tuple(CONFINED[top])):
            wrong.append(f"{name}:{line} imports {module}: only {' and '.join(CONFINED[top])} may")
        for folder, users in CONFINED_FOLDERS.items():
            if f"{module}.".startswith(f"{folder}.") and not name.startswith(tuple(users)):
                wrong.append(f"{name}:{line} imports {module}: only {' and '.join(users)} may")
    return wrong


def test_imports_go_only_to_the_left() -> None:
    sources = [name for name in files() if name.endswith(".py")]
    assert sources
    assert [line for name in sources for line in wrong_imports(name, (ROOT / name).read_text("utf-8"))] == []


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("capture/files/pcap.py", "import lowlevel.table.table"),
        ("lowlevel/table/table.py", "from highlevel.windows.kind import SlidingWindow"),
        ("queries/plan.py", "def f():\n    from dashboards import page"),
        ("dashboards/page.py", "import wiretide"),
        ("highlevel/windows/kind.py", "from pyspark.sql import SparkSession"),
        ("wiretide.py", "import pyspark"),
        ("capture/files/pcap.py", "import dpkt"),
        ("highlevel/windows/kind.py", "from . import operator"),
        ("lowlevel/table/table.py", "from tests.twins import table"),
        ("highlevel/sliding/aggregate.py", "from highlevel.baselines.adaptive.aggregate import AdaptiveAggregate"),
        ("queries/gsql.py", "import highlevel.baselines"),
        ("tests/queries/test_a.py", "from tests.queries.test_b import rows"),
    ],
)
def test_an_import_in_the_wrong_direction_is_seen(name: str, source: str) -> None:
    assert len(wrong_imports(name, source)) == 1


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("lowlevel/table/table.py", "import capture.packets.columns\nfrom lowlevel import plan\nimport numpy"),
        ("highlevel/spark/session/session.py", "import pyspark"),
        ("capture/generate.py", "import scapy.all"),
        ("tests/capture/test_pcap.py", "import dpkt, wiretide, pyspark"),
        ("bench/decode.py", "import wiretide, queries"),
        ("bench/x5.py", "from highlevel.baselines.adaptive.aggregate import AdaptiveAggregate"),
        ("highlevel/compare/ordered.py", "from highlevel.baselines.merge import OrderedMerge"),
        ("highlevel/spark/batch.py", "import highlevel.inorders"),
    ],
)
def test_an_import_to_the_left_is_fine(name: str, source: str) -> None:
    assert wrong_imports(name, source) == []


def find_cycle(imported: dict[str, set[str]]) -> list[str]:
    """A cycle in a graph of modules, from a module to itself. Empty if there is none."""
    checked: set[str] = set()
    for start in imported:
        chain, choices = [start], [iter(sorted(imported[start]))]
        while chain:
            module = next(choices[-1], None)
            if module in chain:
                return [*chain[chain.index(module) :], module]
            if module is None:
                checked.add(chain.pop())
                choices.pop()
            elif module not in checked:
                chain.append(module)
                choices.append(iter(sorted(imported.get(module, ()))))
    return []


def test_the_imports_of_modules_have_no_cycle() -> None:
    """Imports inside functions and under TYPE_CHECKING count too."""
    sources = {
        name.removesuffix(".py").replace("/", "."): ast.parse((ROOT / name).read_text("utf-8"))
        for name in files()
        if name.endswith(".py") and name.partition("/")[0].removesuffix(".py") in PIPELINE
    }
    imported: dict[str, set[str]] = {module: set() for module in sources}
    for module, source in sources.items():
        for node in ast.walk(source):
            if isinstance(node, ast.ImportFrom) and node.module:
                names = {f"{node.module}.{alias.name}" for alias in node.names}
                imported[module] |= (names | {node.module}) & sources.keys()
    assert find_cycle(imported) == []


@pytest.mark.parametrize(
    ("imported", "cycle"),
    [
        ({"a": {"b", "c"}, "b": {"c"}, "c": set()}, []),
        ({"a": {"b"}, "b": {"c"}, "c": {"b"}}, ["b", "c", "b"]),
        ({"a": {"a"}}, ["a", "a"]),
    ],
)
def test_a_cycle_is_found(imported: dict[str, set[str]], cycle: list[str]) -> None:
    assert find_cycle(imported) == cycle


def test_nothing_else_lies_at_the_top() -> None:
    assert {name.partition("/")[0] for name in files()} - TOP_FOLDERS - TOP_FILES == set()


def test_no_file_names_a_machine_or_a_registry() -> None:
    this = Path(__file__).relative_to(ROOT).as_posix()
    found = []
    for name in files():
        text = (ROOT / name).read_text("utf-8", errors="replace")
        if name != this:
            found += [f"{name}: {text[match.start() : match.start() + 60]!r}" for match in MACHINE.finditer(text)]
    assert found == []


@pytest.mark.parametrize(
    "text",
    [
        *(f"open('/{folder}/me/x')" for folder in ("home", "root", "Users")),
        "https://pypi.org/simple",
        "file:///opt/wheels",
    ],
)
def test_a_name_of_a_machine_or_a_registry_is_seen(text: str) -> None:
    assert MACHINE.search(text)


@pytest.mark.parametrize(
    "text", ["/usr/lib/jvm/*", "~/captures", "docs/home/index.md", "$(ROOT)/work/x", "deb.example"]
)
def test_other_paths_and_hosts_are_fine(text: str) -> None:
    assert not MACHINE.search(text)


def test_every_package_says_what_it_is() -> None:
    packages = [name for name in files() if name.endswith("__init__.py")]
    assert packages
    assert [name for name in packages if not ast.get_docstring(ast.parse((ROOT / name).read_text("utf-8")))] == []
