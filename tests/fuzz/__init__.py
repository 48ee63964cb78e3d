"""Fuzzing: bytes that nobody would write, given to everything that reads bytes or text.

A *target* is a module here with a function `check(data)` that raises where something is wrong, and a function `seeds`
that makes its first inputs. Checks of every target:

* **Bounds.** Each kernel runs as plain Python on arrays that refuse every index outside them (`tests.harness.guarded`).
  If a kernel trusts a wrong length from the wire, the test fails. Machine code would silently read on.
* **Agreement.** The same input goes through the machine code, in the same process. Both must give the same.
* **Meaning.** Output columns have valid values: numbers fit the bits of packed keys, payloads lie inside their frame,
  ranges cover the whole file.
* **Errors.** Only those that are messages to the user (`WiretideError`) may be raised.

`make fuzz` runs every target with atheris, guided by the coverage of the plain Python. `tests/fuzz/test_fuzz.py` runs a
few hundred mutated seeds per target with the normal tests. `corpus/` holds the seeds, and every input that found a bug.
"""
