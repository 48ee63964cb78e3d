"""Evaluation of expressions over the columns of a batch, with SQL's NULL.

Logic is three-valued: NULL AND FALSE is FALSE, NULL OR TRUE is TRUE, and every other operation on a NULL is NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import lru_cache, reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from lowlevel.expressions import byte_functions, membership
from lowlevel.expressions import columns as texts
from lowlevel.expressions.address_constants import WIDTH, Address, Prefix
from lowlevel.expressions.columns import (
    AddressVector,
    AnyVector,
    BytesVector,
    Columns,
    Mask,
    TextVector,
    Vector,
    and_masks,
    shape_of,
)
from lowlevel.expressions.payload_names import names_of
from lowlevel.expressions.tree import (
    ENDS_COLUMN,
    AtEnd,
    Binary,
    Call,
    Column,
    Conditional,
    Expression,
    Extreme,
    HashOf,
    InList,
    InPrefix,
    InWatchlist,
    IsNull,
    JoinedText,
    Literal,
    LongestPrefix,
    Masked,
    Mean,
    ParsedText,
    Present,
    ScalarCall,
    SeenWithin,
    SettingValue,
    TextOf,
    Unary,
    UserCall,
    Variance,
    WideSum,
)
from lowlevel.expressions.types import BYTE_TEXT_FUNCTIONS, COMPARISON, PAYLOAD_NAMES, Function, Op, Type
from lowlevel.watch.contents import Contents
from lowlevel.watch.ranges import MAC_SHIFT, NONE, Numbers
from lowlevel.watch.watched_file import Version, Watchlist


def find_in_watchlist(vector: AnyVector, contents: Contents) -> Vector:
    """Return for each address or integer whether it is in a list. The result for NULL is NULL."""
    if isinstance(vector, AddressVector):
        return Vector(_range_indexes(vector, contents) != NONE, vector.valid)
    assert isinstance(vector, Vector)
    return Vector(contents.contains(vector.data), vector.valid)


def find_longest_prefix(vector: AnyVector, version: Version) -> TextVector:
    """Return the label of the longest prefix of each address or MAC; NULL if no prefix contains it, or for a NULL."""
    if isinstance(vector, Vector):
        indexes = _vendor_indexes(vector, version.contents)
    else:
        assert isinstance(vector, AddressVector)
        indexes = _range_indexes(vector, version.contents)
    return _label_texts(indexes, vector.valid, version)


def _label_texts(indexes: Numbers, known: Mask | None, version: Version) -> TextVector:
    """Return labels as texts; NULL for NONE, and for rows whose argument is not `known`."""
    valid: Mask = np.asarray(indexes != NONE)
    ids = indexes if version.ids is None else np.append(version.ids, NONE)[indexes]
    return TextVector(ids, version.names, valid if known is None else valid & known)


def _find_labels_at(vector: AnyVector, times: Vector, contents: Contents) -> Vector:
    """Return the label of each address at its time, or NONE. A NULL address or time gives NULL."""
    assert isinstance(vector, AddressVector)
    assert contents.history is not None, "only lists of rows with lifetimes have times"
    shape = np.broadcast_shapes(vector.low.shape, times.data.shape)
    parts = (np.broadcast_to(part, shape).reshape(-1) for part in (vector.high, vector.low, times.data))
    version = np.broadcast_to(vector.version, shape).reshape(-1) if np.ndim(vector.version) else vector.version
    labels = contents.history.find(version, *parts).reshape(shape)
    masks = [np.broadcast_to(mask, shape) for mask in (vector.valid, times.valid) if mask is not None]
    return Vector(labels, np.logical_and.reduce(masks) if masks else None)


def _range_indexes(vector: AddressVector, contents: Contents) -> Numbers:
    """Return the index of the range of each address; NONE if no range contains it."""
    assert contents.ranges is not None, "a list of addresses"
    high = np.broadcast_to(vector.high, vector.low.shape)
    indexes = contents.ranges.find(vector.version, high.reshape(-1), vector.low.reshape(-1))
    return indexes.reshape(vector.low.shape)


def _vendor_indexes(vector: Vector, contents: Contents) -> Numbers:
    """Return the index of the range of each MAC address; NONE if no range contains it."""
    assert contents.ranges is not None, "a list of vendors"
    high = vector.data.reshape(-1).astype(np.uint64) << np.uint64(MAC_SHIFT)
    indexes = contents.ranges.find(np.array(6), high, np.zeros(len(high), np.uint64))
    return indexes.reshape(vector.data.shape)


NULL_DTYPES = {Type.FLOAT: np.float64, Type.BOOL: np.bool_}
"""Numpy types of NULL constants; int64 for the other types."""


def evaluate(expression: Expression, columns: Columns) -> AnyVector:
    """Evaluate a tree. The builder of the tree has checked the types."""
    match expression:
        case Column(name=name):
            return columns[name]
        case SeenWithin():
            return columns[expression.column]
        case Literal():
            return _literal(expression)
        case Unary(op, operand):
            return _unary(op, _values(operand, columns))
        case Binary(Op.AND | Op.OR as op, left, right):
            return _logic(op, _values(left, columns), _values(right, columns))
        case Binary(op, left, right) if op in COMPARISON:
            return _compare(op, evaluate(left, columns), evaluate(right, columns))
        case Binary(op, left, right):
            return _arithmetic(op, _values(left, columns), _values(right, columns))
        case InList(operand, values):
            return _in_list(evaluate(operand, columns), values)
        case InPrefix(operand, prefixes):
            return _in_prefixes(evaluate(operand, columns), prefixes)
        case InWatchlist(operand, Watchlist() as file, None):
            return find_in_watchlist(evaluate(operand, columns), file.version.contents)
        case LongestPrefix(operand, Watchlist() as file, None):
            return find_longest_prefix(evaluate(operand, columns), file.version)
        case InWatchlist(operand, Watchlist() as file, time) if time is not None:
            labels = _find_labels_at(evaluate(operand, columns), _values(time, columns), file.version.contents)
            return Vector(labels.data != NONE, labels.valid)
        case LongestPrefix(operand, Watchlist() as file, time) if time is not None:
            labels = _find_labels_at(evaluate(operand, columns), _values(time, columns), file.version.contents)
            return _label_texts(labels.data, labels.valid, file.version)
        case SettingValue(Watchlist() as file):
            return Vector(np.array(file.version.contents.value))
        case InWatchlist() | LongestPrefix() | SettingValue():
            raise TypeError(f"got {expression.file}, which is not open, expected an expression bound to a Watchlist")
        case IsNull(operand):
            vector = evaluate(operand, columns)
            return Vector(np.zeros(shape_of(vector), np.bool_) if vector.valid is None else ~vector.valid)
        case Call(function, operand, argument):
            return _call(function, evaluate(operand, columns), argument, columns)
        case Conditional(condition, value, otherwise):
            test = _values(condition, columns)
            mask = test.data if test.valid is None else test.data & test.valid
            one, other = evaluate(value, columns), evaluate(otherwise, columns)
            if isinstance(one, TextVector) and isinstance(other, TextVector):
                one, other = texts.with_common_names(one, other, constant_texts(expression))
            return texts.choose(mask, one, other)
        case Masked(operand, ipv4, ipv6):
            address = evaluate(operand, columns)
            assert isinstance(address, AddressVector)
            return _mask_addresses(address, ipv4, ipv6)
        case ScalarCall(function, operand, argument, constants):
            from lowlevel.expressions import scalar_functions

            subject = evaluate(operand, columns)
            others = [constant.value for constant in constants]
            if isinstance(subject, TextVector):
                return scalar_functions.call_text_function(function, subject, others)
            assert isinstance(subject, Vector)
            exponent = None if argument is None else _values(argument, columns)
            return scalar_functions.call_number_function(function, subject, exponent, others)
        case TextOf(operand):
            from lowlevel.expressions import text_casts

            return text_casts.write_texts(evaluate(operand, columns), operand.type)
        case JoinedText(left, right):
            from lowlevel.expressions import text_casts

            before, after = evaluate(left, columns), evaluate(right, columns)
            assert isinstance(before, TextVector)
            assert isinstance(after, TextVector)
            return text_casts.concatenate(before, after)
        case ParsedText(operand, kind):
            from lowlevel.expressions import text_casts

            text = evaluate(operand, columns)
            assert isinstance(text, TextVector)
            return text_casts.read_texts(text, kind)
        case UserCall(function, arguments):
            return function.apply([evaluate(argument, columns) for argument in arguments])
        case HashOf(arguments, seed, is_uniform):
            from lowlevel.expressions import hashing

            hashes = hashing.hash_values([Vector(np.array(seed)), *(evaluate(each, columns) for each in arguments)])
            return hashing.uniform(hashes) if is_uniform else hashes
        case Extreme(left, right, largest):
            return _extreme(_values(left, columns), _values(right, columns), largest)
        case AtEnd(operand):
            vector, ends = evaluate(operand, columns), columns[ENDS_COLUMN]
            assert isinstance(ends, Vector)
            if isinstance(vector, Vector):
                return Vector(vector.data, and_masks(vector.valid, ends.data))
            return replace(vector, valid=and_masks(vector.valid, ends.data))
        case Present(value, count):
            vector = _values(value, columns)
            return Vector(vector.data, and_masks(vector.valid, _values(count, columns).data > 0))
        case WideSum(high, low, kind):
            return sum_halves(_values(high, columns).data, _values(low, columns).data, kind)
        case Mean(total, count):
            counts = _values(count, columns).data
            present = counts > 0
            totals = _values(total, columns).data.astype(np.float64)
            return Vector(np.divide(totals, counts, out=np.zeros_like(totals), where=present), present)
        case Variance(total, squares, count, sample, root):
            counts = _values(count, columns).data
            divisors = counts - sample
            present = divisors > 0
            totals = _values(total, columns).data.astype(np.float64)
            deviations = _values(squares, columns).data - totals * (totals / np.maximum(counts, 1))
            variance = np.maximum(deviations, 0.0) / np.maximum(divisors, 1)  # rounding may give a negative number
            return Vector(np.sqrt(variance) if root else variance, present)


def sum_halves(high: npt.NDArray[np.int64], low: npt.NDArray[np.int64], kind: Type) -> Vector:
    """Return high * 2**32 + low as INT or FLOAT (`kind`); an INT beyond 64 bits is NULL. `low` may be negative."""
    upper = high + (low >> 32)
    fits = (upper >= -(2**31)) & (upper < 2**31)
    totals = (upper << 32) | (low & 0xFFFFFFFF)
    if kind is Type.INT:
        return Vector(totals, fits)
    return Vector(np.where(fits, totals.astype(np.float64), high * 2.0**32 + low))


def count_overflows(sums: Iterable[WideSum], columns: Columns, rows: int) -> int:
    """Return how many sums are NULL because they exceed 64 bits, over all of `rows` rows."""
    return sum(rows - int(np.count_nonzero(np.asarray(_values(each, columns).valid))) for each in sums)


def _values(expression: Expression, columns: Columns) -> Vector:
    vector = evaluate(expression, columns)
    assert isinstance(vector, Vector)
    return vector


def _literal(literal: Literal) -> AnyVector:
    value = literal.value
    if isinstance(value, Address):
        return AddressVector.constant(value)
    if isinstance(value, str):
        return TextVector.constant(value)
    assert not isinstance(value, bytes)  # bytes occur only as arguments of functions, which use the literal
    if value is None:
        invalid = np.zeros((), np.bool_)
        if literal.type is Type.ADDRESS:
            return AddressVector(np.array(0), np.zeros((), np.uint64), np.zeros((), np.uint64), invalid)
        if literal.type is Type.TEXT:
            return TextVector(np.zeros((), np.int64), ("",), invalid)
        return Vector(np.zeros((), NULL_DTYPES.get(literal.type, np.int64)), invalid)
    return Vector(np.array(value))


@lru_cache
def constant_texts(expression: Expression) -> tuple[str, ...]:
    """Return the constant texts that a conditional can return, in their order."""
    match expression:
        case Conditional(_, value, otherwise):
            return tuple(dict.fromkeys(constant_texts(value) + constant_texts(otherwise)))
        case Literal(value=str(text)):
            return (text,)
    return ()


def _mask_addresses(address: AddressVector, ipv4: int, ipv6: int) -> AddressVector:
    high, low = (np.uint64(half) for half in divmod(2**128 - 2 ** (128 - ipv6), 2**64))
    of_ipv4 = np.uint64(2**32 - 2 ** (32 - ipv4))
    if address.version.ndim == 0:
        is_ipv6 = int(address.version) == 6
        return replace(address, high=address.high & high, low=address.low & (low if is_ipv6 else of_ipv4))
    return replace(address, high=address.high & high, low=address.low & np.where(address.version == 6, low, of_ipv4))


def _extreme(left: Vector, right: Vector, largest: bool) -> Vector:
    data = (np.maximum if largest else np.fmin)(left.data, right.data)
    if left.valid is None and right.valid is None:
        return Vector(data)
    known_left = np.True_ if left.valid is None else left.valid
    known_right = np.True_ if right.valid is None else right.valid
    known = np.where(known_left, left.data, right.data)
    return Vector(np.where(known_left & known_right, data, known), np.asarray(known_left | known_right))


def _unary(op: Op, operand: Vector) -> Vector:
    functions: dict[Op, Callable[[Any], Any]] = {Op.NOT: np.logical_not, Op.NEG: np.negative, Op.BIT_NOT: np.invert}
    return Vector(functions[op](operand.data), operand.valid)


def _logic(op: Op, left: Vector, right: Vector) -> Vector:
    data = left.data & right.data if op is Op.AND else left.data | right.data
    if left.valid is None and right.valid is None:
        return Vector(data)
    decides = np.False_ if op is Op.AND else np.True_
    known_left = np.True_ if left.valid is None else left.valid
    known_right = np.True_ if right.valid is None else right.valid
    decided = (known_left & (left.data == decides)) | (known_right & (right.data == decides))
    data = np.where(decided, decides, data)
    return Vector(data, np.asarray((known_left & known_right) | decided))


@np.errstate(over="ignore", invalid="ignore")  # integers wrap, floats become infinite, without a warning
def _arithmetic(op: Op, left: Vector, right: Vector) -> Vector:
    valid = and_masks(left.valid, right.valid)
    functions: dict[Op, Callable[[Any, Any], Any]] = {
        Op.ADD: np.add,
        Op.SUB: np.subtract,
        Op.MUL: np.multiply,
        Op.BIT_AND: np.bitwise_and,
        Op.BIT_OR: np.bitwise_or,
        Op.BIT_XOR: np.bitwise_xor,
        Op.SHIFT_LEFT: np.left_shift,
        Op.SHIFT_RIGHT: np.right_shift,
    }
    if op in functions:
        return Vector(functions[op](left.data, right.data), valid)
    divisible = np.asarray(right.data != 0)
    divisor = np.where(divisible, right.data, 1)
    if np.float64 in (left.data.dtype, right.data.dtype):
        data = np.true_divide(left.data, divisor) if op is Op.DIV else np.fmod(left.data, divisor)
    else:
        remainder = np.fmod(left.data, divisor)  # towards zero, with the dividend's sign, as in C and in SQL
        data = (left.data - remainder) // divisor if op is Op.DIV else remainder
    return Vector(data, and_masks(valid, divisible))


def _compare(op: Op, left: AnyVector, right: AnyVector) -> Vector:
    valid = and_masks(left.valid, right.valid)
    if isinstance(left, TextVector) and isinstance(right, TextVector):
        same = texts.equal(left, right)
        return Vector(same if op is Op.EQ else ~same, valid)
    if isinstance(left, AddressVector) and isinstance(right, AddressVector):
        return Vector(_compare_addresses(op, left, right), valid)
    functions: dict[Op, Callable[[Any, Any], Any]] = {
        Op.EQ: np.equal,
        Op.NE: np.not_equal,
        Op.LT: np.less,
        Op.LE: np.less_equal,
        Op.GT: np.greater,
        Op.GE: np.greater_equal,
    }
    assert isinstance(left, Vector)
    assert isinstance(right, Vector)
    return Vector(functions[op](left.data, right.data), valid)


def _compare_addresses(op: Op, left: AddressVector, right: AddressVector) -> Any:
    equal = (left.low == right.low) & (left.high == right.high) & (left.version == right.version)
    if op is Op.EQ:
        return equal
    if op is Op.NE:
        return ~equal
    below = (left.version < right.version) | (
        (left.version == right.version)
        & ((left.high < right.high) | ((left.high == right.high) & (left.low < right.low)))
    )
    return {Op.LT: below, Op.LE: below | equal, Op.GT: ~(below | equal), Op.GE: ~below}[op]


def _in_list(vector: AnyVector, values: tuple[Literal, ...]) -> Vector:
    if isinstance(vector, TextVector):
        return Vector(texts.check_texts(vector, membership.cached_texts(values).__contains__), vector.valid)
    if len(values) <= membership.MAX_COMPARED:
        tests = [_compare(Op.EQ, vector, _literal(value)) for value in values]
        return reduce(lambda one, other: _logic(Op.OR, one, other), tests)
    if isinstance(vector, AddressVector):
        return Vector(membership.cached_ranges(values).contains(vector.version, vector.high, vector.low), vector.valid)
    assert isinstance(vector, Vector)
    return Vector(membership.cached_values(values).contains(vector.data), vector.valid)


def _in_prefixes(vector: AnyVector, prefixes: tuple[Prefix, ...]) -> Vector:
    assert isinstance(vector, AddressVector)
    if len(prefixes) > membership.MAX_COMPARED:
        return Vector(
            membership.cached_ranges(prefixes).contains(vector.version, vector.high, vector.low), vector.valid
        )
    inside = reduce(lambda one, other: one | other, [_in_prefix(vector, prefix) for prefix in prefixes])
    return Vector(np.asarray(inside), vector.valid)


def _in_prefix(vector: AddressVector, prefix: Prefix) -> Any:
    width = WIDTH[prefix.version]
    mask = (2**width - 1) ^ (2 ** (width - prefix.length) - 1)
    mask_high, mask_low = divmod(mask, 2**64)
    high, low = divmod(prefix.value, 2**64)
    inside = (vector.version == prefix.version) & ((vector.low & np.uint64(mask_low)) == np.uint64(low))
    return inside & ((vector.high & np.uint64(mask_high)) == np.uint64(high)) if mask_high else inside


def _call(function: Function, operand: AnyVector, argument: Expression | None, columns: Columns) -> AnyVector:
    if isinstance(operand, TextVector):
        if function is Function.LENGTH:
            return Vector(texts.lengths(operand), operand.valid)
        assert isinstance(argument, Literal)
        part = str(argument.value)
        if function is Function.MATCHES:
            return Vector(texts.match_regex(operand, part), operand.valid)
        test = (lambda name: part in name) if function is Function.CONTAINS else (lambda name: name.startswith(part))
        return Vector(texts.check_texts(operand, test), operand.valid)
    assert isinstance(operand, BytesVector)
    if function in PAYLOAD_NAMES:
        return names_of(function, operand)
    if function in BYTE_TEXT_FUNCTIONS:
        return byte_functions.texts_of(operand, as_hex=function is Function.HEX)
    if function is Function.LENGTH:
        return Vector(operand.length, operand.valid)
    if function is Function.BYTE:
        assert argument is not None
        offset = _values(argument, columns)
        value, present = byte_functions.byte_at(operand, offset.data)
        return Vector(value, and_masks(and_masks(operand.valid, offset.valid), present))
    assert isinstance(argument, Literal)
    if function is Function.MATCHES:
        return Vector(byte_functions.matches(operand, str(argument.value)), operand.valid)
    assert isinstance(argument.value, bytes)
    search = byte_functions.contains if function is Function.CONTAINS else byte_functions.starts_with
    return Vector(search(operand, argument.value), operand.valid)
