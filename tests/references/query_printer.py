"""Syntax trees of queries printed as text, for tests that parse the text again."""

from lowlevel.expressions.types import Op
from queries.text import tree
from queries.text.expressions import BITWISE, FACTOR, NOT, RANGE, STRENGTHS, TERM
from queries.text.lexer import Kind

LEAF = FACTOR + 2


def query_text(query: tree.Query) -> str:
    """Return a text with the tree `query`."""
    with_ = "".join(
        f"{', ' if n else 'WITH '}{word(name)} AS ({query_text(q)})" for n, (name, q) in enumerate(query.queries)
    )
    if query.keyword.text.upper() == "MERGE":
        return f"{with_} {table(query.tables[0].table).removeprefix('(').removesuffix(')')}"
    if isinstance(query.tables[0].table, tree.SetOperation):
        return f"{with_} {table(query.tables[0].table)} {order(query.order)}"
    parts = [with_, query.keyword.text, query.distinct.text if query.distinct else ""]
    parts += [", ".join(map(item, query.select)), window(query.window), "FROM", from_items(query.tables)]
    parts += [condition(query.where)]
    groups = [*map(item, query.group_by), *([call(query.call)] if query.call else [])]
    if query.grouping_sets is not None:
        sets = (f"({', '.join(map(item, chosen))})" for chosen in query.grouping_sets.sets)
        groups.append(f"GROUPING SETS ({', '.join(sets)})")
    clauses = query.supergroups or tree.Supergroups(query.keyword)
    supergroup = "SUPERGROUP " + ", ".join(map(item, clauses.items)) if clauses.items else ""
    parts += ["GROUP BY " + ", ".join(groups) if groups else "", supergroup, condition(query.having)]
    parts += [
        condition(clauses.when),
        condition(clauses.by),
        condition(query.closing),
        fill(query.fill),
        order(query.order),
        consistency(query.consistency),
    ]
    return " ".join(part for part in parts if part)


def consistency(node: tree.Consistency | None) -> str:
    if node is None:
        return ""
    options = ", ".join(
        f"{option.name} {length(option.value) if isinstance(option.value, tree.Length) else option.value.text}"
        for option in node.options
    )
    stated = f"WITH {node.level.text} CONSISTENCY" if node.level else f"WITH CONSISTENCY ({options})" if options else ""
    emitted = f"EMIT {node.emit.text}" if node.emit else ""
    clauses = [emitted, stated] if node.keyword.text.upper() == "EMIT" else [stated, emitted]
    return " ".join(clause for clause in clauses if clause)


def item(node: tree.SelectItem) -> str:
    return expression(node.expression) + (f" AS {word(node.alias)}" if node.alias else "")


def condition(node: tree.Condition | None) -> str:
    return f"{node.keyword.text} {expression(node.expression)}" if node else ""


def fill(node: tree.Fill | None) -> str:
    if node is None:
        return ""
    return "FILL " + (node.value.text if isinstance(node.value, tree.Word) else expression(node.value))


def order(node: tree.Order | None) -> str:
    if node is None:
        return ""
    keys = map(order_item, node.items)
    limit = "" if node.limit is None else f" LIMIT {node.limit}"
    return (
        ("ORDER BY " + ", ".join(keys) if node.items else "")
        + limit
        + (f" OFFSET {node.offset}" if node.offset else "")
    )


def order_item(node: tree.OrderItem) -> str:
    return expression(node.expression) + " DESC" * node.descending + f" NULLS {'FIRST' if node.nulls_first else 'LAST'}"


def from_items(items: tuple[tree.FromItem, ...]) -> str:
    return "".join(map(from_item, items))


def from_item(node: tree.FromItem) -> str:
    text = table(node.table) + (f" AS {word(node.alias)}" if node.alias else "") + f" {window(node.window)}"
    join = node.join
    if join is None:
        return text
    if join.word.text == ",":
        return f", {text}"
    keyword = join.word.text if join.by_where or join.word.text.upper() == "JOIN" else f"{join.word.text} JOIN"
    return f" {keyword} {text} {condition(join.on)}"


def table(node: tree.Table) -> str:
    match node:
        case tree.Stream(name, kind):
            text = word(name) + (f".{kind}" if kind else "")
        case tree.Union(parts):
            text = "(" + " UNION ".join(map(table, parts)) + ")"
        case tree.Merge(keyword, times, items):
            listed = " : ".join(f"{word(stream)}.{word(column)}" for stream, column in times)
            text = f"({keyword.text} {listed} FROM {from_items(items)})"
        case tree.SetOperation(operator, _, queries):
            text = f" {operator} ".join(f"({query_text(query)})" for query in queries)
        case tree.Subquery(query):
            text = f"({query_text(query)})"
        case tree.DistinctOn(inner, _, columns, within):
            text = f"{table(inner)} DISTINCT ON ({', '.join(map(expression, columns))}) WITHIN {length(within)}"
        case tree.ChangeLog(inner, _, column):
            text = f"{table(inner)} CHANGES BY {word(column)}"
        case tree.MatchRecognize(inner):
            text = f"{table(inner)} MATCH_RECOGNIZE ({row_pattern_clauses(node)})"
        case tree.AutomatonTable(inner):
            text = f"{table(inner)} AUTOMATON ({automaton_clauses(node)})"
        case tree.MergeRecords(inner, _, columns, within, idle):
            key = f" BY ({', '.join(map(expression, columns))})" if columns else ""
            text = f"{table(inner)} MERGE{key} WITHIN {length(within)}" + (f" IDLE {length(idle)}" if idle else "")
    return text


def automaton_clauses(node: tree.AutomatonTable) -> str:
    parts = [f"PARTITION BY {', '.join(map(word, node.partition))}"] if node.partition else []
    parts.append(f"ORDER BY {word(node.order)}")
    parts += [f"LIFETIME TO {word(node.until)}"] if node.until else []
    parts += [f"NUMBERED BY {word(node.number)}"] if node.number else []
    fields = [
        f"{word(field.name)} {word(field.type)}" + (f" DEFAULT {expression(field.initial)}" if field.initial else "")
        for field in node.register
    ]
    parts += [f"REGISTER {', '.join(fields)}"] if fields else []
    parts += ["ALL ROWS PER MATCH"] if node.has_all_rows else []
    parts.append(f"START {word(node.start)} FINAL {', '.join(map(word, node.finals))}")
    parts += map(arc, node.arcs)
    parts += [f"ARCS FROM '{node.rules.text}'"] if node.rules else []
    parts += [] if node.within is None else [f"WITHIN INTERVAL '{node.within} nanoseconds'"]
    return " ".join(parts)


def arc(node: tree.AutomatonArc) -> str:
    text = f"{'SILENT ' * node.is_silent}ARC {word(node.source)} TO {word(node.target)}"
    if node.deadline is not None:
        return f"{text} AT {expression(node.deadline)}"
    when = f" WHEN {expression(node.condition)}" if node.condition else ""
    changes = ", ".join(f"{word(name)} = {expression(value)}" for name, value in node.changes)
    begin = f" FROM {expression(node.begin)}" if node.begin else ""
    end = f" TO {expression(node.end)}" if node.end else ""
    return text + when + (f" SET {changes}" if changes else "") + begin + end


def row_pattern_clauses(node: tree.MatchRecognize) -> str:
    partition = f"PARTITION BY {', '.join(map(word, node.partition))} " if node.partition else ""
    measures = f" MEASURES {', '.join(map(item, node.measures))}" if node.measures else ""
    skip = node.skip.rule if node.skip.variable is None else f"TO {node.skip.rule} {word(node.skip.variable)}"
    within = "" if node.within is None else f" WITHIN INTERVAL '{node.within} nanoseconds'"
    definitions = ", ".join(f"{word(variable)} AS {expression(condition)}" for variable, condition in node.definitions)
    define = f" DEFINE {definitions}" if definitions else ""
    unions = ", ".join(f"{word(name)} = ({', '.join(map(word, words))})" for name, words in node.subsets)
    subset = f" SUBSET {unions}" if unions else ""
    pattern = row_pattern(node.pattern)
    return (
        f"{partition}ORDER BY {word(node.order)}{measures} {node.rows} AFTER MATCH SKIP {skip} "
        f"PATTERN ({pattern}){within}{subset}{define}"
    )


def row_pattern(node: tree.RowPattern) -> str:
    match node:
        case tree.PatternVariable(name):
            return word(name)
        case tree.PatternSequence(parts):
            return " ".join(map(_grouped, parts)) or "()"
        case tree.PatternChoice(parts):
            return " | ".join(map(_grouped, parts))
        case tree.PatternExclusion(part):
            return f"{{- {row_pattern(part)} -}}"
        case tree.PatternAnchor(text):
            return text
        case tree.PatternPermutation(parts):
            return f"PERMUTE({', '.join(map(row_pattern, parts))})"
        case tree.PatternRepeat(part, least, most, is_reluctant):
            bounds = f"{{{least},{'' if most is None else most}}}"
            return f"{_grouped(part)}{bounds}{'?' * is_reluctant}"


def _grouped(node: tree.RowPattern) -> str:
    return row_pattern(node) if isinstance(node, tree.PatternVariable) else f"({row_pattern(node)})"


def window(node: tree.Window | None) -> str:
    return f"[{', '.join(map(parameter, node.parameters))}]" if node else ""


def parameter(node: tree.Parameter) -> str:
    match node.value:
        case tree.Length():
            value = length(node.value)
        case tree.Attribute():
            value = attribute(node.value)
        case tree.Constant():
            value = expression(node.value)
        case tree.Word():
            value = node.value.text
        case tuple():
            between = " TO " if node.name == "LIFETIME" else ", "
            value = between.join(map(expression, node.value))
        case None:
            value = ""
    return f"{node.keyword.text} {value}"


def length(node: tree.Length) -> str:
    return f"{'TUMBLING ' if node.tumbling else ''}{node.number} {node.unit}"


def attribute(node: tree.Attribute) -> str:
    rest = node.text.removeprefix(node.word.text.lower())
    return (f"{word(node.table)}." if node.table else "") + word(node.word) + rest


def call(node: tree.WindowCall) -> str:
    arguments = ", ".join([attribute(node.time), *map(length, node.lengths)])
    return f"{node.function.text}({arguments})" + (f" AS {word(node.alias)}" if node.alias else "")


def expression(node: tree.Expression) -> str:
    return expression_within(node, 0)


def frame_bound(node: tree.FrameBound) -> str:
    """Print a bound of a frame in OVER."""
    match node.distance:
        case _ if node.direction is None:
            return "CURRENT ROW"
        case None:
            distance = "UNBOUNDED"
        case tree.Length(number, unit):
            distance = f"{number} {unit}"
        case number:
            distance = constant(number)
    return f"{distance} {node.direction}"


def expression_within(node: tree.Expression, weakest: int) -> str:
    """Print an expression as an operand, in parentheses if it binds more weakly than `weakest`."""
    strength = LEAF
    match node:
        case tree.Constant():
            text = constant(node)
        case tree.Name(name, table_name):
            text = (f"{word(table_name)}." if table_name else "") + word(name)
        case tree.Star(table=table_name):
            text = f"{word(table_name)}.*" if table_name else "*"
        case tree.Call(function, arguments, where, is_final):
            text = f"{'FINAL ' * is_final}{word(function)}({', '.join(map(expression, arguments))})"
            text += f" FILTER (WHERE {expression(where)})" if where else ""
        case tree.Over(function, partition, order, frame):
            parts = [f"PARTITION BY {', '.join(map(expression, partition))}"] if partition else []
            parts += [f"ORDER BY {', '.join(map(order_item, order))}"] if order else []
            if frame is not None:
                keyword = "RANGE" if frame.by_values else "ROWS"
                parts.append(f"{keyword} BETWEEN {frame_bound(frame.first)} AND {frame_bound(frame.last)}")
            text = f"{expression(function)} OVER ({' '.join(parts)})"
        case tree.Cast(operand, kind, _, is_try):
            text = f"{'TRY_' * is_try}CAST({expression(operand)} AS {word(kind)})"
        case tree.Concatenation(operands):
            strength = BITWISE
            text = " || ".join(expression_within(each, TERM) for each in operands)
        case tree.Like(operand, pattern, ignore_case):
            strength = RANGE
            keyword = "ILIKE" if ignore_case else "LIKE"
            text = f"{expression_within(operand, RANGE)} {keyword} {expression_within(pattern, RANGE + 1)}"
        case tree.ScalarQuery(query):
            text = f"({query_text(query)})"
        case tree.Exists(query):
            text = f"EXISTS ({query_text(query)})"
        case tree.Null():
            text = "NULL"
        case tree.Case(operand, branches, otherwise):
            text = f"CASE {expression(operand) if operand else ''} "
            text += " ".join(f"WHEN {expression(when)} THEN {expression(then)}" for when, then in branches)
            text += f" ELSE {expression(otherwise)} END"
        case tree.Unary(op, operand):
            strength = NOT if op is Op.NOT else FACTOR + 1
            text = f"{'-' if op is Op.NEG else op.value} " + expression_within(operand, strength + (op is not Op.NOT))
        case tree.Operation(op, operands):
            strength = STRENGTHS[op]
            first, *others = operands
            chain = op in tree.ASSOCIATIVE
            parts = [expression_within(first, strength + chain)]
            parts += [expression_within(operand, strength + 1) for operand in others]
            text = f" {op.value} ".join(parts)
        case tree.Between(operand, low, high):
            strength = RANGE
            bounds = f"{expression_within(low, RANGE + 1)} AND {expression_within(high, RANGE + 1)}"
            text = f"{expression_within(operand, RANGE)} BETWEEN {bounds}"
        case tree.In(operand, values):
            strength = RANGE
            text = f"{expression_within(operand, RANGE)} IN ({', '.join(map(expression, values))})"
        case tree.IsNull(operand):
            strength = RANGE
            text = f"{expression_within(operand, RANGE)} IS NULL"
    return text if strength >= weakest else f"({text})"


def constant(node: tree.Constant) -> str:
    text = "'" + node.text.replace("'", "''") + "'"
    match node.kind:
        case Kind.STRING:
            return text
        case Kind.TIME:
            return f"TIMESTAMP {text}"
        case Kind.BYTES:
            return f"x{text}"
        case Kind.QUOTED:
            return word(tree.Word(node.text, 0, True))
    return f"{'-' if node.negative else ''}{node.text}"


def word(node: tree.Word) -> str:
    return '"' + node.text.replace('"', '""') + '"' if node.quoted else node.text
