"""Kernels: numba functions that start without numba.

Importing numba and loading its cached functions takes longer than most queries. So numba is used once per machine, as
a compiler: the machine code of each kernel is kept in a cache folder and later processes load it with llvmlite alone.
Only public interfaces of both are used (`cfunc.inspect_llvm`, `TargetMachine.emit_object`).

A kernel takes pointers and scalars, indexes pointers like arrays, returns one integer (a count or a status code),
raises nothing and runs without the GIL. It is plain Python at the same time: `Kernel.function` runs it on numpy
arrays, slowly.

**No bounds are checked inside**: a kernel's caller owes it arrays of the sizes its docstring names.
"""

from __future__ import annotations

import atexit
import ctypes
import errno
import functools
import hashlib
import json
import os
import stat
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import numpy as np

from capture.private_files import (
    UnsafeFolderError,
    belongs_to_us,
    check_private_folder,
    make_private_folder,
    only_we_can_write,
    replace_file,
)

SCALARS: dict[str, tuple[str, Any, Any]] = {
    "i64": ("int64", ctypes.c_int64, np.int64),
    "u64": ("uint64", ctypes.c_uint64, np.uint64),
    "f64": ("float64", ctypes.c_double, np.float64),
    "u8": ("uint8", ctypes.c_uint8, np.uint8),
}
"""Types in a kernel's signature: their numba, C and numpy names. A `*` behind one makes a pointer."""

IS_HELPER, IS_OUTLINED, BUILDER = "__kernel_helper__", "__kernel_outlined__", "__kernel_builder__"
"""Attributes that mark helpers; the last is what makes the compiled form of one that has no body."""

CACHE = "kernels"
"""Name of the folder that is the cache of machine code."""

kernels: list[Kernel] = []
"""Every kernel that has been declared in this process."""

_loading = threading.Lock()  # two threads would compile the same kernel twice, for seconds
_engines: list[Any] = []  # machine code lives as long as the engine that loaded it


def helper(function: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a function that kernels call; it is compiled into them."""
    setattr(function, IS_HELPER, True)
    return function


def outlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a helper that a kernel holds once and calls: what few packets need must not slow down the rest."""
    setattr(function, IS_OUTLINED, True)
    return helper(function)


def intrinsic(build: Callable[[], Any]) -> Callable[[Any], Any]:
    """Mark a helper that the machine has an instruction for: `build` makes what numba compiles a call of it into."""

    def mark(function: Callable[..., Any]) -> Callable[..., Any]:
        setattr(function, BUILDER, build)
        return helper(function)

    return mark


def kernel(signature: str) -> Callable[[Any], Kernel]:
    """Declare a kernel by its C-like signature, such as `i64(u8*, i64, i64*)`."""
    return lambda function: Kernel(function, signature)


def pointer(array: np.ndarray[Any, Any], kind: str) -> int:
    """Address of a contiguous array's first element, after a check of its type. The caller keeps the array alive."""
    wanted = SCALARS[kind][2]
    flags = array.flags
    if array.dtype != wanted or not flags.c_contiguous:
        raise TypeError(f"a kernel needs a contiguous array of {wanted.__name__}, got {array.dtype} {array.strides}")
    if flags.writeable and array.size:
        # In a third of the time that numpy takes to say it; its arrays are buffers, though its types do not say so.
        return ctypes.addressof(ctypes.c_char.from_buffer(array))  # type: ignore[arg-type]
    return int(array.__array_interface__["data"][0])


def cache_folder() -> Path:
    """Folder of the machine code: `$XDG_CACHE_HOME/wiretide/kernels`, by default below `~/.cache`.

    Machine code runs with all our rights, and a hash in the file proves nothing: whoever replaces the code replaces
    the hash. So a folder that another user could write to is not used, with one warning: this process then compiles
    into a scratch folder.
    """
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return _safe_folder(Path(base) if base else Path.home() / ".cache")
    except RuntimeError:  # no HOME and no such user, as in some containers: compile anew in every process
        return _scratch_folder()


@functools.cache
def _safe_folder(base: Path) -> Path:
    """Return the cache folder below `base`, or the scratch folder if a part of the cache folder is not safe."""
    folder = base / "wiretide" / CACHE
    for each in (base / "wiretide", folder):
        try:
            check_private_folder(each)
            owned = belongs_to_us(each.lstat())
        except FileNotFoundError:
            continue  # it is made with mode 0700
        except (NotADirectoryError, PermissionError):
            return folder  # nothing can be read there, and nothing written
        except UnsafeFolderError as error:
            _warn(f"{error}; until then kernels are compiled again in every process")
            return _scratch_folder()
        if not owned:
            _warn(f"{each}: a symbolic link of another user; delete it; kernels are compiled again in every process")
            return _scratch_folder()
    return folder


def _warn(text: str) -> None:
    print(f"wiretide: warning: the cache of machine code is not used: {text}", file=sys.stderr, flush=True)


@functools.cache
def _scratch_folder() -> Path:
    """Make a folder that is this process's own: machine code is never taken from a folder that others may write to."""
    scratch = tempfile.TemporaryDirectory(prefix="wiretide-kernels-")
    atexit.register(scratch.cleanup)
    return Path(scratch.name)


def has_lasting_cache() -> bool:
    """Return whether the machine code that this process stores is kept for other processes."""
    return cache_folder().name == CACHE


def missing(needed: Callable[[Kernel], bool] | None = None) -> list[Kernel]:
    """Return the needed kernels, by default all, that are not in the cache; the first call compiles them."""
    return [each for each in kernels if (needed is None or needed(each)) and each.stored() is None]


def _fingerprint(symbol: str, code: bytes) -> str:
    """Digest of both: calling a symbol that the code does not have is a jump to address 0."""
    return hashlib.sha256(symbol.encode() + b"\n" + code).hexdigest()


class Kernel:
    """One kernel. Calling it takes numpy arrays, or addresses from `pointer`, for pointers and numbers for scalars."""

    def __init__(self, function: FunctionType, signature: str) -> None:
        """Declare; nothing is compiled or loaded before the first call."""
        self.function = function
        self.name = function.__name__
        self.__doc__ = function.__doc__
        result, _, arguments = signature.rstrip(")").partition("(")
        self.result = result
        self.arguments = [argument.strip() for argument in arguments.split(",")]
        self._pointers = [argument[:-1] if argument[-1] == "*" else "" for argument in self.arguments]
        self.signature = signature
        self._native: Callable[..., int] | None = None
        kernels.append(self)

    def __call__(self, *arguments: Any) -> int:
        """Run the machine code, compiling it first where the cache has none. Any threads may call."""
        return self.at(
            *[
                pointer(value, kind) if kind and type(value) is not int else value
                for kind, value in zip(self._pointers, arguments, strict=True)
            ]
        )

    def at(self, *arguments: float) -> int:
        """Run it with addresses for all pointers: to look at each argument takes as long as hundreds of rows."""
        if self._native is None:
            with _loading:
                self._native = self._native or self._load(self.stored() or self.compile())
        return self._native(*arguments)

    def path(self) -> Path:
        """File of the machine code; its name covers the functions, the signature and the processor.

        The functions as they are in memory: a source that has changed since the import is another kernel's.
        """
        digest = hashlib.sha256("\0".join([self.signature, *_target()]).encode())
        for name, function in sorted(self._functions().items()):
            code = function.__code__
            values = [function.__globals__.get(each) for each in code.co_names]
            constants = [value for value in values if isinstance(value, int | float | tuple)]
            outlined = hasattr(function, IS_OUTLINED)
            content = (name, code.co_code, code.co_consts, code.co_names, code.co_varnames, constants, outlined)
            if hasattr(function, BUILDER):
                digest.update(repr(_spelled(getattr(function, BUILDER).__code__)).encode())
            digest.update(repr(content).encode())
        return cache_folder() / f"{self.name}-{digest.hexdigest()[:32]}.o"

    def stored(self) -> tuple[str, bytes] | None:
        """Symbol and machine code from the cache, or None if there is no whole file that only we can write."""
        try:
            header, _, code = _read_own(self.path()).partition(b"\n")
            described = json.loads(header)
            symbol = described["symbol"]
            whole = described["sha256"] == _fingerprint(symbol, code)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
        return (symbol, code) if whole else None

    def compile(self) -> tuple[str, bytes]:
        """Compile with numba (seconds) and store; an unwritable cache costs the next process the same again."""
        import llvmlite.binding as llvm
        import numba

        types = {kind: getattr(numba.types, names[0]) for kind, names in SCALARS.items()}
        spelled = [
            numba.types.CPointer(types[kind[:-1]])  # type: ignore[no-untyped-call]
            if kind[-1] == "*"
            else types[kind]
            for kind in self.arguments
        ]
        compiled = numba.cfunc(types[self.result](*spelled), error_model="numpy")(_calling_compiled(self.function))
        module = llvm.parse_assembly(compiled.inspect_llvm())
        machine = llvm.Target.from_default_triple().create_target_machine(
            cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=3, jit=True
        )
        outlined = [name for name, each in self._functions().items() if hasattr(each, IS_OUTLINED)]
        # Inlined into its C entry point the kernel is seen to raise nothing, and the way out into Python falls away.
        for each in module.functions:
            if not each.is_declaration and each.name != compiled.native_name:
                each.linkage = "internal"
                if any(f"{len(name)}{name}" in each.name for name in outlined):  # as a mangled name holds it
                    each.add_function_attribute("noinline")
        passes = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=3))
        passes.getModulePassManager().run(module, passes)
        foreign = {each.name for each in module.functions if each.is_declaration} - {"memset", "memcpy", "memmove"}
        foreign = {name for name in foreign if not name.startswith("llvm.")}
        if foreign:
            raise TypeError(f"kernel {self.name} is not self-contained: it calls {', '.join(sorted(foreign))}")
        code = machine.emit_object(module)
        self._store(compiled.native_name, code)
        return compiled.native_name, code

    def _store(self, symbol: str, code: bytes) -> None:
        header = json.dumps({"symbol": symbol, "sha256": _fingerprint(symbol, code)}).encode()
        target = self.path()
        try:
            make_private_folder(target.parent)
            replace_file(target, header + b"\n" + code)
        except (OSError, UnsafeFolderError):
            return  # a read-only home, a full disk: no reason to fail, the code is in memory

    def _load(self, stored: tuple[str, bytes]) -> Callable[..., int]:
        import llvmlite.binding as llvm

        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        symbol, code = stored
        machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
        engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        engine.finalize_object()
        _engines.append(engine)
        kinds = [ctypes.c_void_p if kind[-1] == "*" else SCALARS[kind][1] for kind in self.arguments]
        prototype = ctypes.CFUNCTYPE(SCALARS[self.result][1], *kinds)
        return prototype(engine.get_function_address(symbol))  # ctypes releases the GIL during the call

    def _functions(self) -> dict[str, FunctionType]:
        """Collect the kernel's function and every helper it reaches, by name."""
        found: dict[str, FunctionType] = {}
        todo = [self.function]
        while todo:
            function = todo.pop()
            found[function.__name__] = function
            reached: list[Any] = [function.__globals__.get(name) for name in function.__code__.co_names]
            todo += [each for each in reached if hasattr(each, IS_HELPER) and each.__name__ not in found]
        return found


@functools.cache
def _target() -> list[str]:
    """Describe the compiler and the processor of this process."""
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features().flatten()
    return [llvm.__name__, llvm.get_host_cpu_name(), features, str(llvm.llvm_version_info)]


def _read_own(path: Path) -> bytes:
    """Read a file that only this user can write; raise OSError for any other file and for a symbolic link."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or not only_we_can_write(status):
            raise PermissionError(errno.EPERM, "other users can write this file", str(path))
        return file.read()


def _spelled(code: CodeType) -> tuple[Any, ...]:
    """A function's code and that of the functions in it, without what differs from process to process."""
    constants = tuple(_spelled(each) if isinstance(each, CodeType) else each for each in code.co_consts)
    return code.co_code, constants, code.co_names


def _calling_compiled(function: FunctionType) -> FunctionType:
    """Copy a function; where it calls helpers the copy calls numba functions, since numba compiles no others."""
    names = [name for name in function.__code__.co_names if hasattr(function.__globals__.get(name), IS_HELPER)]
    compiled = {name: _compiled(function.__globals__[name]) for name in names}
    return FunctionType(function.__code__, function.__globals__ | compiled, function.__name__)


@functools.cache
def _compiled(function: FunctionType) -> Any:
    """Compile a helper, once for all kernels of this process that call it."""
    import numba

    if hasattr(function, BUILDER):
        return getattr(function, BUILDER)()
    inline = not hasattr(function, IS_OUTLINED)
    options: dict[str, Any] = {"error_model": "numpy", "forceinline": inline}
    options |= {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}  # only compiled code calls it
    return numba.njit(**options)(_calling_compiled(function))
