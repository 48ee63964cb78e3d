"""Write the seeds of every target: `python -m tests.fuzz.seeds`. Inputs that found a bug are left where they are."""

from __future__ import annotations

from tests.fuzz.targets import CORPUS, TARGETS


def main() -> None:
    """Write them all."""
    for target in TARGETS.values():
        folder = CORPUS / target.name
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.iterdir():
            if not old.name.startswith("found-"):
                old.unlink()
        for name, data in target.load().seeds().items():
            assert len(data) <= target.longest, (target.name, name, len(data))
            (folder / name).write_bytes(data)


if __name__ == "__main__":
    main()
