"""Kernels: numba functions that run without importing numba.

Importing numba and loading its cached functions takes longer than most queries. So numba is used only as a compiler,
once per machine. The machine code of a kernel is stored in a cache folder. Later processes load it without numba. On
x86-64 Linux they do not need llvmlite either (`capture.object_code`).

Only public interfaces of numba and llvmlite are used (`cfunc.inspect_llvm`, `TargetMachine.emit_object`).

A kernel takes pointers and scalars, and indexes pointers like arrays. It returns one integer (a count or a status
code), raises no exceptions and runs without the GIL. `Kernel.function` is the same kernel as plain Python for numpy
arrays (slow).

Kernels with many parameters take **records**: named tuples that the caller builds once per table or batch. A signature
names their classes, such as `i64(TableMemory, TableRows, i64)`; the module of the kernel imports them. The fields have
the types Integer, Integers, Unsigned, Floats and Bytes. Machine code receives the fields one by one as scalars. Helper
functions take the same records. The update and flush kernels of tables take records; the other kernels take arguments
one by one.

**Kernels do not check bounds**: the caller must pass arrays of the sizes that the docstring of the kernel states.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import threading
from ast import literal_eval
from collections.abc import Callable, Iterable, Sequence
from importlib.util import find_spec
from itertools import islice, takewhile
from pathlib import Path
from types import CodeType, FunctionType
from typing import Annotated, Any, get_type_hints

import numpy as np

from capture import object_code
from capture.kernel_cache import cache_folder, locked_cache, read_trusted, shipped_folder
from capture.private_files import UnsafeFolderError, make_private_folder, replace_file

try:  # hashlib also loads OpenSSL, which takes 2 ms
    from _sha256 import sha256  # type: ignore[import-not-found]
except ImportError:
    from hashlib import sha256

SCALAR_TYPES: dict[str, tuple[str, Any, Any]] = {
    "i64": ("int64", ctypes.c_int64, np.int64),
    "u64": ("uint64", ctypes.c_uint64, np.uint64),
    "f64": ("float64", ctypes.c_double, np.float64),
    "u8": ("uint8", ctypes.c_uint8, np.uint8),
}
"""Types in a kernel's signature: their numba, C and numpy names. A suffix `*` makes a pointer."""

Integer = Annotated[int, "i64"]
Integers = Annotated[Any, "i64*"]
Unsigned = Annotated[Any, "u64*"]
Floats = Annotated[Any, "f64*"]
Bytes = Annotated[Any, "u8*"]
"""Types of the fields of records. The value of a pointer field (`i64*`, ...) is an address. If `Kernel.function` runs
as plain Python, it is an array."""

IS_HELPER, IS_OUTLINED, BUILDER = "__kernel_helper__", "__kernel_outlined__", "__kernel_builder__"
"""Names of attributes that mark helpers. The value of BUILDER is a function that builds an intrinsic."""

kernels: list[Kernel] = []
"""All kernels declared in this process."""

_load_lock = threading.Lock()  # without it, two threads could compile the same kernel, which takes seconds
PROCESSOR_ENTRIES = ("vendor_id", "cpu family", "model", "model name", "stepping", "flags")
"""Entries of /proc/cpuinfo that identify the processor for which machine code is compiled."""

_engines: list[Any] = []  # machine code is freed with the engine that loaded it


def helper(function: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a function that kernels call. It is compiled into them."""
    setattr(function, IS_HELPER, True)
    return function


def outlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a helper that is not inlined: code that few packets need and that must not slow down the others."""
    setattr(function, IS_OUTLINED, True)
    return helper(function)


def intrinsic(build: Callable[..., Any], **options: bool) -> Callable[[Any], Any]:
    """Mark a helper that maps to a machine instruction. `build`, called with `options`, returns its numba intrinsic."""

    def mark(function: Callable[..., Any]) -> Callable[..., Any]:
        setattr(function, BUILDER, functools.partial(build, **options))
        return helper(function)

    return mark


def kernel(signature: str) -> Callable[[Any], Kernel]:
    """Declare a kernel by its C-like signature, such as `i64(u8*, i64, i64*)`."""
    return lambda function: Kernel(function, signature)


def pointer(array: np.ndarray[Any, Any], kind: str) -> int:
    """Return the address of a contiguous array of type `kind`. The caller must keep the array alive."""
    expected = SCALAR_TYPES[kind][2]
    flags = array.flags
    if array.dtype != expected or not flags.c_contiguous:
        raise TypeError(f"a kernel needs a contiguous array of {expected.__name__}, got {array.dtype} {array.strides}")
    if flags.writeable and array.size:
        # This is three times as fast as numpy's attribute. Arrays are buffers, but their type stubs omit this.
        return ctypes.addressof(ctypes.c_char.from_buffer(array))  # type: ignore[arg-type]
    return int(array.__array_interface__["data"][0])


def missing_kernels(is_needed: Callable[[Kernel], bool] | None = None) -> list[Kernel]:
    """Return the kernels that are not in the cache: their first call compiles them. `is_needed` selects kernels."""
    return [kernel for kernel in kernels if (is_needed is None or is_needed(kernel)) and not kernel.is_stored()]


def _read_code(path: Path) -> tuple[str, bytes] | None:
    """Return symbol and machine code of a file. Return None if it is incomplete, or if another user can write to it."""
    try:
        header, _, code = read_trusted(path).partition(b"\n")
        header_fields = literal_eval(header.decode())  # JSON of two texts; the import of json takes 1 ms
        symbol = header_fields["symbol"]
        complete = header_fields["sha256"] == _compute_digest(symbol, code)
    except (OSError, ValueError, SyntaxError, KeyError, TypeError, AttributeError):
        return None
    return (symbol, code) if complete else None


def _compute_digest(symbol: str, code: bytes) -> str:
    """Return a digest of symbol and code.

    The symbol is included, because a call of a missing symbol jumps to address 0.
    """
    return sha256(symbol.encode() + b"\n" + code).hexdigest()


class Kernel:
    """A kernel. A call takes records, numbers for scalars, and arrays or addresses (see `pointer`) for pointers."""

    def __init__(self, function: FunctionType, signature: str) -> None:
        """Declare a kernel. It is compiled or loaded at its first call."""
        self.function = function
        self.name = function.__name__
        self.__doc__ = function.__doc__
        result, _, arguments = signature.rstrip(")").partition("(")
        self.result = result
        names = [argument.strip() for argument in arguments.split(",")]
        self.records = [function.__globals__[name] if name[0].isupper() else None for name in names]
        self.arguments = [
            kind
            for name, record in zip(names, self.records, strict=True)
            for kind in ([name] if record is None else _field_types(record))
        ]
        self._pointers = [argument[:-1] if argument[-1] == "*" else "" for argument in self.arguments]
        self.signature = signature
        self._native: Callable[..., int] | None = None
        self._stored: tuple[str, bytes] | None = None
        """The result of `stored`, between `is_stored` and the first call."""
        kernels.append(self)

    def __call__(self, *arguments: Any) -> int:
        """Run the machine code; compile it first if it is not in the cache. Thread safe."""
        flat = flatten(arguments)
        return self.at(
            *[
                pointer(value, kind) if kind and type(value) is not int else value
                for kind, value in zip(self._pointers, flat, strict=True)
            ]
        )

    def at(self, *arguments: Any) -> int:
        """Run the machine code; all pointers are addresses. The slow checks of `__call__` are omitted."""
        if self._native is None:
            with _load_lock:
                self._native = self._native or self._load(self._stored or self.stored() or self._compile_once())
                self._stored = None
        return self._native(*flatten(arguments))

    def group(self, flat: Sequence[Any]) -> list[Any]:
        """Return the arguments of `function`: `flatten` reversed. Records are built from the values of their fields."""
        values = iter(flat)
        return [
            next(values) if record is None else record(*islice(values, len(record._fields))) for record in self.records
        ]

    def path(self) -> Path:
        """Return the file of the machine code. Its name contains a hash of the functions, the signature and the CPU.

        The functions are hashed as loaded in memory, not as source files, which may have changed since the import.
        """
        digest = sha256("\0".join([self.signature, *_target()]).encode())
        for record in filter(None, self.records):
            digest.update(repr((record._fields, _field_types(record))).encode())
        for _, function in sorted(self._functions().items()):
            digest.update(_describe_code(function))
        return cache_folder() / f"{self.name}-{digest.hexdigest()[:32]}.o"

    def stored(self) -> tuple[str, bytes] | None:
        """Return symbol and machine code from the cache, or from the files that were shipped with the environment.

        Return None if there is no file that is complete and that only this user can write to.
        """
        path = self.path()
        return _read_code(path) or _read_code(shipped_folder() / path.name)

    def is_stored(self) -> bool:
        """Return whether `stored` finds machine code, and keep it, so that the first call need not read it again."""
        if self._native is None and self._stored is None:
            self._stored = self.stored()
        return self._native is not None or self._stored is not None

    def stored_path(self) -> Path | None:
        """Return the file of `stored`, or None."""
        path = self.path()
        return next((file for file in (path, shipped_folder() / path.name) if _read_code(file) is not None), None)

    def _compile_once(self) -> tuple[str, bytes]:
        """Compile the kernel. If another process with the same cache is compiling it, wait for its machine code."""
        with locked_cache():
            return self.stored() or self.compile()

    def compile(self) -> tuple[str, bytes]:
        """Compile with numba (takes seconds) and store the code. If storing fails, the next process compiles too."""
        import llvmlite.binding as llvm
        import numba

        types = {kind: getattr(numba.types, names[0]) for kind, names in SCALAR_TYPES.items()}
        types_of_arguments = [
            numba.types.CPointer(types[kind[:-1]])  # type: ignore[no-untyped-call]
            if kind[-1] == "*"
            else types[kind]
            for kind in self.arguments
        ]
        compiled = numba.cfunc(types[self.result](*types_of_arguments), error_model="numpy")(self._entry())
        module = llvm.parse_assembly(compiled.inspect_llvm())
        machine = llvm.Target.from_default_triple().create_target_machine(
            cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=3, jit=True
        )
        outlined = [name for name, function in self._functions().items() if hasattr(function, IS_OUTLINED)]
        # All functions except the C entry point become internal. LLVM then inlines the kernel, sees that it raises
        # nothing, and removes the code that would report an error to Python.
        for function in module.functions:
            if not function.is_declaration and function.name != compiled.native_name:
                function.linkage = "internal"
                if any(f"{len(name)}{name}" in function.name for name in outlined):  # the form of a mangled name
                    function.add_function_attribute("noinline")
        passes = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=3))
        passes.getModulePassManager().run(module, passes)
        foreign = {function.name for function in module.functions if function.is_declaration} - {
            "memset",
            "memcpy",
            "memmove",
        }
        foreign = {name for name in foreign if not name.startswith("llvm.")}
        if foreign:
            raise TypeError(f"kernel {self.name} is not self-contained: it calls {', '.join(sorted(foreign))}")
        code = machine.emit_object(module)
        self._store(compiled.native_name, code)
        return compiled.native_name, code

    def _entry(self) -> FunctionType:
        """Return the function to compile. With records, it takes their fields as parameters and builds them."""
        if not any(self.records):
            return _with_compiled_helpers(self.function)
        parameters = [f"value{index}" for index in range(len(self.arguments))]
        values = iter(parameters)
        kernel_arguments = [
            next(values) if record is None else f"{record.__name__}({', '.join(islice(values, len(record._fields)))})"
            for record in self.records
        ]
        names = {record.__name__: record for record in self.records if record is not None}
        source = f"lambda {', '.join(parameters)}: kernel({', '.join(kernel_arguments)})"
        entry = eval(source, names | {"kernel": _compile_helper(self.function)})
        assert isinstance(entry, FunctionType)
        entry.__name__ = entry.__qualname__ = self.name
        return entry

    def _store(self, symbol: str, code: bytes) -> None:
        header = f'{{"symbol": "{symbol}", "sha256": "{_compute_digest(symbol, code)}"}}'.encode()
        target = self.path()
        try:
            make_private_folder(target.parent)
            replace_file(target, header + b"\n" + code)
        except (OSError, UnsafeFolderError):
            return  # a read-only home or a full disk is no error: the code is in memory

    def _load(self, stored: tuple[str, bytes]) -> Callable[..., int]:
        symbol, code = stored
        address = object_code.load(code, symbol) or _load_with_llvm(code, symbol)
        kinds = [ctypes.c_void_p if kind[-1] == "*" else SCALAR_TYPES[kind][1] for kind in self.arguments]
        prototype = ctypes.CFUNCTYPE(SCALAR_TYPES[self.result][1], *kinds)
        return prototype(address)  # ctypes releases the GIL during the call

    def _functions(self) -> dict[str, FunctionType]:
        """Return by name the kernel's function and all helpers that it calls, directly or through other helpers."""
        functions: dict[str, FunctionType] = {}
        unvisited = [self.function]
        while unvisited:
            function = unvisited.pop()
            functions[function.__name__] = function
            unvisited += [called for called in _called_helpers(function) if called.__name__ not in functions]
        return functions


def flatten(arguments: Iterable[Any]) -> list[Any]:
    """Replace the records among the arguments by their fields."""
    flat: list[Any] = []
    for argument in arguments:
        if isinstance(argument, tuple):
            flat += argument
        else:
            flat.append(argument)
    return flat


@functools.cache
def _field_types(record: Any) -> list[str]:
    """Return the types of the fields of a record."""
    hints = get_type_hints(record, include_extras=True)
    return [hints[name].__metadata__[0] for name in record._fields]


# Kernels share most of their helpers, so the results of these two functions are computed once for each helper.
@functools.cache
def _called_helpers(function: FunctionType) -> list[FunctionType]:
    """Return the helpers that a function calls directly."""
    referenced: list[Any] = [function.__globals__.get(name) for name in function.__code__.co_names]
    return [candidate for candidate in referenced if hasattr(candidate, IS_HELPER)]


@functools.cache
def _describe_code(function: FunctionType) -> bytes:
    """Return the name, code and constants of a function as text, for the file name of machine code."""
    code = function.__code__
    values = [function.__globals__.get(variable) for variable in code.co_names]
    constants = [value for value in values if isinstance(value, int | float | tuple)]
    outlined = hasattr(function, IS_OUTLINED)
    name = function.__name__
    content = (name, code.co_code, code.co_consts, code.co_names, code.co_varnames, constants, outlined)
    builder = getattr(function, BUILDER, None)
    built = "" if builder is None else repr((_comparable_code(builder.func.__code__), builder.keywords))
    return (built + repr(content)).encode()


def _load_with_llvm(code: bytes, symbol: str) -> int:
    """Return the address of `symbol` in an object that LLVM loads, on systems that `object_code` does not support."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    _engines.append(engine)
    return int(engine.get_function_address(symbol))


@functools.cache
def _target() -> list[str]:
    """Describe the compiler and the processor of this process, on Linux without the import of the compiler."""
    package = find_spec("llvmlite")
    if package is not None and package.origin is not None:
        with contextlib.suppress(OSError):
            version = Path(package.origin).with_name("_version.py").read_text("utf-8")
            with Path("/proc/cpuinfo").open() as lines:
                first_processor = {
                    name.strip(): value
                    for name, _, value in (line.partition(":") for line in takewhile(str.strip, lines))
                }
            if "flags" in first_processor:
                return [version, *(first_processor.get(name, "") for name in PROCESSOR_ENTRIES)]
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features().flatten()
    return [llvm.__name__, llvm.get_host_cpu_name(), features, str(llvm.llvm_version_info)]


def _comparable_code(code: CodeType) -> tuple[Any, ...]:
    """Return the code of a function and its inner functions, without the parts that differ between processes."""
    constants = tuple(
        _comparable_code(constant) if isinstance(constant, CodeType) else constant for constant in code.co_consts
    )
    return code.co_code, constants, code.co_names


def _with_compiled_helpers(function: FunctionType) -> FunctionType:
    """Copy a function so that it calls the compiled helpers. numba cannot compile calls of plain functions."""
    names = [name for name in function.__code__.co_names if hasattr(function.__globals__.get(name), IS_HELPER)]
    compiled = {name: _compile_helper(function.__globals__[name]) for name in names}
    return FunctionType(function.__code__, function.__globals__ | compiled, function.__name__)


@functools.cache
def _compile_helper(function: FunctionType) -> Any:
    """Compile a helper once for all kernels of this process."""
    import numba

    if hasattr(function, BUILDER):
        return getattr(function, BUILDER)()
    inline = not hasattr(function, IS_OUTLINED)
    options: dict[str, Any] = {"error_model": "numpy", "forceinline": inline}
    options |= {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}  # only compiled code calls it
    return numba.njit(**options)(_with_compiled_helpers(function))
