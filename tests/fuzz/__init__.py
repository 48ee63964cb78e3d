"""Fuzzing: bytes that nobody would write, given to everything that reads bytes or text.

A *target* is a module here with a function `check(data)` that raises where something is wrong, and a function `seeds`
that makes its first inputs. What every target checks:

* **Bounds.** Each kernel runs as plain Python on arrays that refuse every index outside them
(`tests.harness.guarded`): a length of the wire that is trusted shows, where machine code would read on in silence.
* **Agreement.** The same input goes through the machine code, in the same process. Both must give the same.
* **Meaning.** What comes out is what its columns say: numbers fit the bits that keys are packed by, payloads lie inside
  their frame, ranges join to the whole file.
* **Errors.** Only those that are messages to the user (`WiretideError`) may be raised.

`make fuzz` runs every target with atheris, guided by the coverage of the plain Python; `tests/fuzz/test_fuzz.py` runs
a few hundred mutated seeds of each with the normal tests. `corpus/` holds the seeds, and every input that found a bug.
"""
