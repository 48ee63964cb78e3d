"""Find a Java runtime for Spark, or install one.

A runtime is suitable if its version is 17 or newer and it has the module `jdk.incubator.vector`, which Spark 4.3 needs
and reduced runtimes lack. One start of `java` (about 0.1 s) shows both. The search covers `JAVA_HOME`, `PATH`, the
Python environment (`java` below it, an earlier download), and the folders of Debian and Homebrew.

`python -m highlevel.spark.session.java` installs a runtime if no runtime is suitable. `list_install_ways` returns the
possible ways in order, and `install` tries them. `require_java` never installs a runtime.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import jdk
from jdk.client.client import ClientError

from capture.errors import WiretideError
from capture.lazy_dataclasses import dataclass

MIN_JAVA = 17
"""The oldest Java version that runs Spark 4.3."""

DOWNLOAD_FOLDER = Path(sys.prefix) / "java"
"""Folder of a downloaded runtime. It is inside the environment and removed with it."""

SYSTEM_PATTERNS = ("/usr/lib/jvm/*", "/opt/homebrew/opt/openjdk*", "/usr/local/opt/openjdk*")
"""Patterns of folders with runtimes from package managers, which need not be on `PATH`."""

APT_PACKAGES = ("openjdk-17-jre-headless", "openjdk-21-jre-headless", "default-jre-headless")
"""Debian packages, the tested version first. Each Debian release contains one or two of them."""


class JavaMissingError(WiretideError):
    """There is no Java runtime that Spark can use. The message is one line, and names the packages to install."""


@dataclass(frozen=True)
class Machine:
    """The package managers of a machine, and the rights of this process to use them."""

    apt: bool
    brew: bool
    root: bool
    sudo: bool

    @classmethod
    def detect(cls) -> "Machine":
        """Return the properties of this machine. `sudo` is True only if it needs no password."""
        sudo_test = ["sudo", "-n", "true"]
        return cls(
            apt=shutil.which("apt-get") is not None,
            brew=shutil.which("brew") is not None,
            root=os.geteuid() == 0,
            sudo=shutil.which("sudo") is not None and subprocess.run(sudo_test, capture_output=True).returncode == 0,
        )


Command = tuple[str, ...]


def list_install_ways(machine: Machine) -> list[list[Command]]:
    """Return the ways to install Java with the machine's package managers, best first. Each is a list of commands.

    The list is empty if this process may use no package manager. apt needs root, or `sudo` without a password. Homebrew
    refuses to run as root.
    """
    if machine.apt and (machine.root or machine.sudo):
        apt_get = (*(() if machine.root else ("sudo", "-n")), "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq")
        installs = [[(*apt_get, "install", "-y", "--no-install-recommends", name)] for name in APT_PACKAGES]
        return [[(*apt_get, "update"), *installs[0]], *installs[1:]]
    if machine.brew and not machine.root:
        return [[("brew", "install", "openjdk@17")]]
    return []


def give_install_advice(machine: Machine) -> str:
    """Return the command that installs Java on this machine, for the end of an error message."""
    if machine.apt:
        return f"sudo apt-get install {APT_PACKAGES[0]}"
    if machine.brew:
        return "brew install openjdk@17"
    return f"install a Java runtime, version {MIN_JAVA} or newer, and set JAVA_HOME to its folder"


def find_candidates(environ: Mapping[str, str]) -> Iterator[Path]:
    """Yield the possible paths of `java` in the order of preference. They need not exist."""
    if environ.get("JAVA_HOME"):
        yield Path(environ["JAVA_HOME"]) / "bin" / "java"
    on_path = shutil.which("java", path=environ.get("PATH", os.defpath))
    if on_path:
        yield Path(on_path)
    for pattern in (f"{DOWNLOAD_FOLDER}/*", f"{DOWNLOAD_FOLDER}/*/Contents/Home", *SYSTEM_PATTERNS):
        for home in sorted(Path("/").glob(pattern.lstrip("/")), reverse=True):
            yield home / "bin" / "java"


def read_home(java: Path) -> Path | None:
    """Return the home of the runtime of `java`, or None if it is not suitable or does not start.

    >>> read_home(Path("/nowhere/bin/java")) is None
    True
    """
    command = [str(java), "--add-modules", "jdk.incubator.vector", "-XshowSettings:properties", "-version"]
    try:
        process = subprocess.run(command, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL)
    except OSError:
        return None
    if process.returncode != 0:
        return None
    properties = dict(re.findall(r"^ *(java\.home|java\.specification\.version) = (.+)$", process.stderr, re.MULTILINE))
    # Versions up to Java 8 are written 1.8, so their first number is 1, which is also too small.
    version = int(properties.get("java.specification.version", "0").partition(".")[0])
    return Path(properties["java.home"]) if version >= MIN_JAVA and "java.home" in properties else None


def find_java_home() -> Path | None:
    """Return the folder of the first suitable runtime, or None."""
    return next(filter(None, map(read_home, find_candidates(os.environ))), None)


def require_java() -> Path:
    """Set `JAVA_HOME` of this process to a suitable runtime, for the JVM that it starts. Return the folder.

    Raises:
        JavaMissingError: there is no suitable runtime.
    """
    home = find_java_home()
    if home is None:
        found_paths = [str(java) for java in find_candidates(os.environ) if java.exists()]
        found_text = (
            f"got only {', '.join(found_paths)}"
            if found_paths
            else "got none in JAVA_HOME, on PATH or in folders of the system"
        )
        raise JavaMissingError(
            f"Spark needs Java {MIN_JAVA} or newer, {found_text}; {give_install_advice(Machine.detect())}"
        )
    os.environ["JAVA_HOME"] = str(home)
    return home


def download() -> None:
    """Unpack a Java development kit (about 190 MB) below `DOWNLOAD_FOLDER`.

    A development kit is used because a plain runtime need not contain every module.

    Raises:
        OSError: the network is not reachable, or the disk is full. jdk.JdkError, ClientError: there is no download for
        this system, or the archive cannot be unpacked.
    """
    DOWNLOAD_FOLDER.mkdir(parents=True, exist_ok=True)
    jdk.install(str(MIN_JAVA), path=str(DOWNLOAD_FOLDER))


def install(machine: Machine) -> None:
    """Try the ways of `list_install_ways`, and then the download, until a suitable Java is installed.

    Print the commands on standard error.
    """
    for commands in list_install_ways(machine):
        for command in commands:
            print("java:", *command, file=sys.stderr)
            if subprocess.run(command, stdin=subprocess.DEVNULL, stdout=sys.stderr).returncode != 0:
                break
        if find_java_home():
            return
    print(f"java: downloading Java {MIN_JAVA} into {DOWNLOAD_FOLDER}", file=sys.stderr)
    try:
        download()
    except (OSError, jdk.JdkError, ClientError) as error:
        print(f"java: the download failed: {error}", file=sys.stderr)


def main() -> int:
    """Install Java for Spark if necessary. Print its folder and return 0, or print advice and return 1."""
    if find_java_home() is None:
        install(Machine.detect())
    try:
        print(f"java: {require_java()}")
    except JavaMissingError as error:
        print(f"java: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
