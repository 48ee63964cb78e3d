"""Loader for relocatable ELF objects, so that a process does not need LLVM to run machine code from the cache.

Kernels are compiled for the large code model: their objects contain only absolute 64-bit relocations, and call only
`memset`, `memcpy` and `memmove`. `load` returns None for any other object. The pages of the code are never
writable and executable at the same time.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import struct
import sys

SUPPORTED = sys.platform == "linux" and platform.machine() == "x86_64" and sys.maxsize > 2**32
"""True on x86-64 Linux, the only system whose objects the loader supports."""

C_FUNCTIONS = ("memset", "memcpy", "memmove")
"""Functions of the C library that objects may call."""

HEADER = struct.Struct("<16sHHIQQQIHHHHHH")  # Elf64_Ehdr
SECTION = struct.Struct("<IIQQQQIIQQ")  # Elf64_Shdr
SYMBOL = struct.Struct("<IBBHQQ")  # Elf64_Sym
RELOCATION = struct.Struct("<QQq")  # Elf64_Rela
IDENTITY = b"\x7fELF\x02\x01\x01"  # 64 bits, little-endian, version 1
REL, X86_64 = 1, 62  # e_type, e_machine
SYMTAB, RELA, NOBITS = 2, 4, 8  # sh_type
ALLOC = 2  # sh_flags: the section is in memory
UNDEFINED = 0  # section number of a symbol that another object defines
ABSOLUTE_64 = 1  # R_X86_64_64
UNWINDING = b".eh_frame"  # not loaded, because kernels raise nothing

_mappings: list[mmap.mmap] = []  # machine code stays mapped as long as the process runs


def load(object_bytes: bytes, symbol: str) -> int | None:
    """Map an object and return the address of `symbol`; None if the loader does not support the object."""
    if not SUPPORTED or object_bytes[:7] != IDENTITY:
        return None
    try:
        return _map(object_bytes, symbol)
    except (struct.error, ValueError, IndexError):  # the object is truncated or corrupt
        return None


def _map(object_bytes: bytes, symbol: str) -> int | None:
    _, kind, machine, _, _, _, table, _, _, _, _, size, count, names = HEADER.unpack_from(object_bytes)
    if (kind, machine, size) != (REL, X86_64, SECTION.size):
        return None
    sections = [SECTION.unpack_from(object_bytes, table + index * SECTION.size) for index in range(count)]
    section_offsets, length = _lay_out(object_bytes, sections, sections[names][4])
    memory = mmap.mmap(-1, max(length, 1), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for index, memory_offset in section_offsets.items():
        _, kind, _, _, offset, size, _, _, _, _ = sections[index]
        if kind != NOBITS:
            memory[memory_offset : memory_offset + size] = object_bytes[offset : offset + size]
    addresses = _resolve_symbols(object_bytes, sections, section_offsets, base)
    if (
        addresses is None
        or symbol not in addresses[0]
        or not _relocate(object_bytes, sections, section_offsets, addresses[1], memory)
    ):
        return None
    library = ctypes.CDLL(None)
    if library.mprotect(ctypes.c_void_p(base), ctypes.c_size_t(len(memory)), mmap.PROT_READ | mmap.PROT_EXEC) != 0:
        return None  # forbidden, for instance by SELinux
    _mappings.append(memory)
    return addresses[0][symbol]


def _lay_out(object_bytes: bytes, sections: list[tuple[int, ...]], strings_offset: int) -> tuple[dict[int, int], int]:
    """Return the memory offset of each section to load, by section number, and the total length in bytes."""
    section_offsets, length = {}, 0
    for index, (name, _, flags, _, _, size, _, _, alignment, _) in enumerate(sections):
        if flags & ALLOC and not object_bytes.startswith(UNWINDING, strings_offset + name):
            length = -(-length // max(alignment, 1)) * max(alignment, 1)
            section_offsets[index] = length
            length += size
    return section_offsets, length


def _resolve_symbols(
    object_bytes: bytes, sections: list[tuple[int, ...]], section_offsets: dict[int, int], base: int
) -> tuple[dict[str, int], list[int | None]] | None:
    """Return the addresses of symbols by name and by number; None if the object calls an unknown function.

    A symbol without memory, such as the name of the source file, has no address.
    """
    tables = [section for section in sections if section[1] == SYMTAB]
    if len(tables) != 1:
        return None
    _, _, _, _, offset, size, link, _, _, _ = tables[0]
    strings_offset = sections[link][4]
    library = ctypes.CDLL(None)
    by_name: dict[str, int] = {}
    by_number: list[int | None] = []
    for entry in range(offset, offset + size, SYMBOL.size):
        name, _, _, section, value, _ = SYMBOL.unpack_from(object_bytes, entry)
        text = object_bytes[strings_offset + name : object_bytes.index(b"\0", strings_offset + name)].decode()
        address: int | None = None
        if section == UNDEFINED and text:
            if text not in C_FUNCTIONS:
                return None
            address = ctypes.cast(getattr(library, text), ctypes.c_void_p).value
        elif section in section_offsets:
            address = base + section_offsets[section] + value
        by_number.append(address)
        if address is not None and text:
            by_name[text] = address
    return by_name, by_number


def _relocate(
    object_bytes: bytes,
    sections: list[tuple[int, ...]],
    section_offsets: dict[int, int],
    symbol_addresses: list[int | None],
    memory: mmap.mmap,
) -> bool:
    """Write the addresses into the sections.

    Return False if a relocation is not absolute with 64 bits, or if its symbol has no address.
    """
    for _, kind, _, _, offset, size, _, target, _, _ in sections:
        if kind != RELA or target not in section_offsets:
            continue
        for entry in range(offset, offset + size, RELOCATION.size):
            section_offset, info, addend = RELOCATION.unpack_from(object_bytes, entry)
            address = symbol_addresses[info >> 32]
            if info & 0xFFFFFFFF != ABSOLUTE_64 or address is None:
                return False
            struct.pack_into("<Q", memory, section_offsets[target] + section_offset, address + addend)
    return True
