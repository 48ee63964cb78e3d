"""Write the seeds that are not there yet: `python -m tests.fuzz.seeds`. Those that are there stay as they are."""

from __future__ import annotations

from tests.fuzz.targets import CORPUS, TARGETS


def main() -> None:
    """Write those of every target."""
    for target in TARGETS.values():
        folder = CORPUS / target.name
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in target.load().seeds().items():
            assert len(data) <= target.longest, (target.name, name, len(data))
            if not (folder / name).exists():
                (folder / name).write_bytes(data)


if __name__ == "__main__":
    main()
