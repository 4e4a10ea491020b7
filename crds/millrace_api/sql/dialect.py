"""Spark's SQL as sqlglot reads it: its functions, the parser, and positions in the text.

This is the only module that knows the dialect. A parsed query keeps the positions of names but not of keywords.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, ClassVar

from sqlglot import exp, parse, parse_one
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, TokenError
from sqlglot.generators.spark import SparkGenerator
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import TokenType

from millrace_api.errors import MillraceError, Problem

logging.getLogger("sqlglot").disabled = True  # it reports what it does not know beside our own errors

BUILTIN = frozenset(
    """
    abs acos acosh add_months aes_decrypt aes_encrypt aggregate and any any_value approx_count_distinct
    approx_percentile approx_top_k approx_top_k_accumulate approx_top_k_combine approx_top_k_estimate array array_agg
    array_append array_compact array_contains array_distinct array_except array_insert array_intersect array_join
    array_max array_min array_position array_prepend array_remove array_repeat array_size array_sort array_union
    arrays_overlap arrays_zip ascii asin asinh assert_true atan atan2 atanh avg base64 between bigint bin binary bit_and
    bit_count bit_get bit_length bit_or bit_xor bitmap_and_agg bitmap_bit_position bitmap_bucket_number
    bitmap_construct_agg bitmap_count bitmap_or_agg bool_and bool_or boolean bround btrim cardinality case cast cbrt
    ceil ceiling char char_length character_length chr coalesce collate collation collations collect_list collect_set
    collect_union concat concat_ws contains conv convert_timezone corr cos cosh cot count count_if count_min_sketch
    counter_diff covar_pop covar_samp crc32 csc cume_dist curdate current_catalog current_database current_date
    current_path current_schema current_time current_timestamp current_timezone current_user date date_add date_diff
    date_format date_from_unix_date date_part date_sub date_trunc dateadd datediff datepart day dayname dayofmonth
    dayofweek dayofyear decimal decode degrees dense_rank div double e element_at elt encode endswith equal_null every
    exists exp explode explode_outer expm1 extract factorial filter find_in_set first first_value flatten float floor
    forall format_number format_string from_avro from_base32 from_csv from_json from_protobuf from_unixtime
    from_utc_timestamp from_xml get get_json_object getbit greatest grouping grouping_id hash hex histogram_numeric
    hll_sketch_agg hll_sketch_estimate hll_union hll_union_agg hmac hour hypot if ifnull ilike in initcap inline
    inline_outer input_file_block_length input_file_block_start input_file_name instr int is_valid_utf8 is_valid_variant
    is_variant_null isnan isnotnull isnull jaro_winkler_similarity java_method json_array_length json_object_keys
    json_tuple kll_merge_agg_bigint kll_merge_agg_double kll_merge_agg_float kll_sketch_agg_bigint kll_sketch_agg_double
    kll_sketch_agg_float kll_sketch_get_n_bigint kll_sketch_get_n_double kll_sketch_get_n_float
    kll_sketch_get_quantile_bigint kll_sketch_get_quantile_double kll_sketch_get_quantile_float
    kll_sketch_get_rank_bigint kll_sketch_get_rank_double kll_sketch_get_rank_float kll_sketch_merge_bigint
    kll_sketch_merge_double kll_sketch_merge_float kll_sketch_to_string_bigint kll_sketch_to_string_double
    kll_sketch_to_string_float kurtosis lag last last_day last_value lcase lead least left len length levenshtein like
    listagg ln localtime localtimestamp locate log log10 log1p log2 lower lpad ltrim luhn_check make_date
    make_dt_interval make_interval make_time make_timestamp make_timestamp_ltz make_timestamp_ntz make_valid_utf8
    make_ym_interval map map_concat map_contains_key map_entries map_filter map_from_arrays map_from_entries map_keys
    map_values map_zip_with mask max max_by md5 mean measure median min min_by minute mod mode
    monotonically_increasing_id month monthname months_between named_struct nanvl negative next_day not now nth_value
    ntile nullif nullifzero nvl nvl2 octet_length or overlay parse_json parse_url percent_rank percentile
    percentile_approx percentile_cont percentile_disc pi pmod posexplode posexplode_outer position positive pow power
    printf python_worker_logs quarter quote radians raise_error rand randn random randstr range rank reduce reflect
    regexp regexp_count regexp_extract regexp_extract_all regexp_instr regexp_like regexp_replace regexp_substr
    regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy repeat replace reverse
    right rint rlike round row_number rpad rtrim schema_of_avro schema_of_csv schema_of_json schema_of_variant
    schema_of_variant_agg schema_of_xml sec second sentences sequence session_user session_window sha sha1 sha2
    shiftleft shiftright shiftrightunsigned shuffle sign signum sin sinh size skewness slice smallint some sort_array
    soundex space spark_partition_id split split_part sql_keywords sqrt st_asbinary st_geogfromwkb st_geomfromwkb
    st_setsrid st_srid stack startswith std stddev stddev_pop stddev_samp str_to_map string string_agg struct substr
    substring substring_index sum tan tanh theta_difference theta_intersection theta_intersection_agg theta_sketch_agg
    theta_sketch_estimate theta_union theta_union_agg time time_bucket time_diff time_from_micros time_from_millis
    time_from_seconds time_to_micros time_to_millis time_to_seconds time_trunc timestamp timestamp_micros
    timestamp_millis timestamp_nanos timestamp_seconds tinyint to_avro to_base32 to_binary to_char to_csv to_date
    to_json to_number to_protobuf to_time to_timestamp to_timestamp_ltz to_timestamp_ntz to_unix_timestamp
    to_utc_timestamp to_varchar to_variant_object to_xml transform transform_keys transform_values translate trim trunc
    try_add try_aes_decrypt try_avg try_divide try_element_at try_make_interval try_make_timestamp
    try_make_timestamp_ltz try_make_timestamp_ntz try_mod try_multiply try_parse_json try_parse_url try_reflect
    try_subtract try_sum try_to_binary try_to_date try_to_number try_to_time try_to_timestamp try_url_decode
    try_validate_utf8 try_variant_array_append try_variant_get try_variant_insert try_variant_set
    tuple_difference_double tuple_difference_integer tuple_difference_theta_double tuple_difference_theta_integer
    tuple_intersection_agg_double tuple_intersection_agg_integer tuple_intersection_double tuple_intersection_integer
    tuple_intersection_theta_double tuple_intersection_theta_integer tuple_sketch_agg_double tuple_sketch_agg_integer
    tuple_sketch_estimate_double tuple_sketch_estimate_integer tuple_sketch_summary_double tuple_sketch_summary_integer
    tuple_sketch_theta_double tuple_sketch_theta_integer tuple_union_agg_double tuple_union_agg_integer
    tuple_union_double tuple_union_integer tuple_union_theta_double tuple_union_theta_integer typeof ucase unbase64
    unhex uniform unix_date unix_micros unix_millis unix_nanos unix_seconds unix_timestamp upper url_decode url_encode
    user uuid validate_utf8 var_pop var_samp variance variant_array_append variant_delete variant_explode
    variant_explode_outer variant_get variant_insert variant_set variant_strip_nulls vector_avg vector_cosine_similarity
    vector_inner_product vector_l2_distance vector_norm vector_normalize vector_sum version weekday weekofyear when
    width_bucket window window_time xpath xpath_boolean xpath_double xpath_float xpath_int xpath_long xpath_number
    xpath_short xpath_string xxhash64 year zeroifnull zip_with
    """.split()  # noqa: SIM905 - five hundred names
)
"""Functions listed by ``SHOW SYSTEM FUNCTIONS``, without operators, in lower case."""

SYNTAX = frozenset({"identifier", "timediff", "timestampadd", "timestampdiff", "try_cast"})
"""Names that Spark's grammar accepts like functions and does not list."""

FUNCTIONS = BUILTIN | SYNTAX
"""All names that can be called."""

ANONYMOUS_AGGREGATES = frozenset(
    """
    bitmap_and_agg collect_union count_min_sketch every histogram_numeric hll_sketch_agg hll_union_agg
    kll_merge_agg_bigint kll_merge_agg_double kll_merge_agg_float kll_sketch_agg_bigint kll_sketch_agg_double
    kll_sketch_agg_float mean measure some std theta_intersection_agg theta_sketch_agg theta_union_agg try_avg try_sum
    tuple_intersection_agg_double tuple_intersection_agg_integer tuple_sketch_agg_double tuple_sketch_agg_integer
    tuple_union_agg_double tuple_union_agg_integer
    """.split()  # noqa: SIM905 - as above
)
"""Aggregate functions of Spark that sqlglot does not know, and so parses as anonymous functions."""


_PARSED_AGGREGATES = {name for kind in exp.ALL_FUNCTIONS if issubclass(kind, exp.AggFunc) for name in kind.sql_names()}
_PARSED_AGGREGATES |= {"APPROX_PERCENTILE", "BIT_AND", "BIT_OR", "BIT_XOR", "COLLECT_LIST", "COLLECT_SET", "LISTAGG",
                "PERCENTILE", "PERCENTILE_APPROX", "STRING_AGG"}  # fmt: skip
_CASTS = {"BOOLEAN", "DATE", "DOUBLE", "FLOAT", "INT", "STRING", "TIMESTAMP", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ"}
_PARSED = _PARSED_AGGREGATES | _CASTS | {"ARRAY", "LCASE", "LOWER", "MOD", "UCASE", "UPPER"}
"""Functions that sqlglot parses into their own node types: all aggregates, and the functions that are compiled."""

_HINTS = {"BROADCAST", "BROADCASTJOIN", "MAPJOIN", "MERGE", "MERGEJOIN", "SHUFFLEMERGE", "SHUFFLE_HASH",
          "SHUFFLE_REPLICATE_NL"}  # fmt: skip
_OWN_SYNTAX = {"CAST", "EXTRACT", "OVERLAY", "POSITION", "SUBSTR", "SUBSTRING", "TRIM", "TRY_CAST"} | _HINTS
"""Calls whose parentheses hold more than a list of arguments."""

_UNIT_FUNCTIONS = {"DATEADD", "DATEDIFF", "DATE_ADD", "DATE_DIFF", "TIMESTAMPADD", "TIMESTAMPDIFF"}
_UNITS = {"YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "DAYOFYEAR", "HOUR", "MINUTE", "SECOND", "MILLISECOND",
          "MICROSECOND"}  # fmt: skip
"""Units that may be the first of three arguments of a function in ``_UNIT_FUNCTIONS``, unless they are columns."""

_ONE_UNIT = re.compile(r"\s*-?[0-9]+(\.[0-9]+)?\s+[A-Za-z]+\s*")
"""Text of an INTERVAL that sqlglot takes apart correctly."""

_INTERVAL_UNITS = {
    f"{unit}{plural}"
    for unit in ("YEAR", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND", "NANOSECOND")
    for plural in ("", "S")
}
_AMOUNTS = (TokenType.NUMBER, TokenType.STRING)
_NO_UNIT = "is no unit of an INTERVAL"

FROM_CTE = "from_cte"
"""Mark of a SELECT that stands in the place of a CTE's name."""

_MATERIALIZED = "MATERIALIZED"
_QUERY_STARTS = (TokenType.SELECT, TokenType.WITH, TokenType.FROM, TokenType.VALUES, TokenType.L_PAREN)
"""Words that a query begins with; the columns of an alias do not: ``FROM t AS materialized (a, b)``."""

_ALIAS_IN_GROUP_BY = "GROUP BY takes no alias"

_MOST_STEPS = 250_000
"""Tokens that the parser may read, each as often as it does; a text of 64 KiB has at most a quarter of that."""


class WeightedQuantile(exp.Quantile):
    """``percentile(x, p, frequency)``, whose third argument sqlglot would drop."""

    arg_types: ClassVar = {"this": True, "quantile": True, "frequency": False}
    _sql_names: ClassVar = ["PERCENTILE"]


class StreamingSql(Spark):
    """Spark SQL in which ``window`` is a function, as in ``GROUP BY window(at, '1 minute')``.

    By default, sqlglot reads the word as the start of a WINDOW clause, which a streaming query cannot have.
    """

    class Tokenizer(Spark.Tokenizer):
        """Tokenizer of Spark without the keyword WINDOW; a doubled quote is an escaped quote, as in Spark 4."""

        STRING_ESCAPES: ClassVar = ["\\", "'", '"']
        KEYWORDS: ClassVar = {word: token for word, token in Spark.Tokenizer.KEYWORDS.items() if word != "WINDOW"}

    class Generator(SparkGenerator):
        """Generator of Spark that writes literals of type TIME as literals, although sqlglot parses them as casts.

        It also writes the third argument of ``max_by`` and ``min_by``, which Spark has since 4.2.
        """

        TRANSFORMS: ClassVar = {
            **SparkGenerator.TRANSFORMS,
            exp.ArgMax: lambda self, call: self.func("MAX_BY", call.this, call.expression, call.args.get("count")),
            exp.ArgMin: lambda self, call: self.func("MIN_BY", call.this, call.expression, call.args.get("count")),
        }

        def cast_sql(self, expression: exp.Cast, safe_prefix: str | None = None) -> str:
            """Return the SQL of a cast, or of the literal that sqlglot parsed as a cast."""
            literal = expression.this
            if expression.is_type(exp.DType.TIME) and isinstance(literal, exp.Literal):
                return f"TIME {self.sql(literal)}"
            return super().cast_sql(expression, safe_prefix)

    class Parser(SparkParser):
        """Parser of Spark 4 in ANSI mode, in which a failed CAST raises an error instead of giving NULL.

        Functions that Millrace does not analyze are kept as they are written. sqlglot would rewrite those that it
        knows, which does not always keep their meaning: ``to_char``, for example, loses its format.
        """

        STRICT_CAST = True
        FUNCTIONS: ClassVar = {name: make for name, make in SparkParser.FUNCTIONS.items() if name in _PARSED}
        FUNCTION_PARSERS: ClassVar = {
            **{name: parse for name, parse in SparkParser.FUNCTION_PARSERS.items() if name in _PARSED | _OWN_SYNTAX},
            "PERCENTILE": lambda self: self._parse_percentile(),
        }

        def reset(self) -> None:
            """Forget the text that was parsed, and how long that took."""
            super().reset()
            self._steps = 0

        def _advance(self, times: int = 1) -> None:
            """Go on by some tokens. For ``INT(INT(INT(a)))``, sqlglot tries each level twice: 30 would take days."""
            self._steps += 1
            if self._steps > _MOST_STEPS:
                message = "the SQL takes too long to parse: it calls names of types, such as INT(x), within each other"
                raise MillraceError(Problem(message, "write CAST(x AS INT) for INT(x), or fewer levels of struct(...)"))
            super()._advance(times)

        def _parse_function_call(self, *args: Any, **options: Any) -> exp.Expr | None:
            call = super()._parse_function_call(*args, **options)
            if isinstance(call, exp.Anonymous) and call.name.upper() in _UNIT_FUNCTIONS and len(call.expressions) == 3:
                unit = call.expressions[0]
                if isinstance(unit, exp.Column) and unit.name.upper() in _UNITS:
                    unit.replace(exp.Var(this=unit.name.upper()))
            return call

        def _parse_percentile(self) -> exp.Quantile:
            call: exp.Quantile = self._parse_distinct_arg_function(WeightedQuantile)
            return call if call.args.get("frequency") else exp.Quantile(**call.args)

        def _parse_interval(self, require_interval: bool = True, parse_function_unit: bool = True) -> Any:
            if self._match_pair(TokenType.INTERVAL, TokenType.STRING, advance=False):
                text = self._next.text
                if re.search("[A-Za-z]", text) and not _ONE_UNIT.fullmatch(text):
                    self._advance(2)  # sqlglot would search the text for numbers and units: '.5 seconds' would be 5
                    return self.expression(exp.Interval(this=exp.Literal.string(text)))
            first = self._index
            interval: exp.Expr | None = super()._parse_interval(require_interval, parse_function_unit)
            if not require_interval or not isinstance(interval, exp.Interval | exp.Add):
                return interval
            self._require_units(self._tokens[first : self._index])
            while (more := self._signed_part()) is not None:  # 1 DAY -30 MINUTES is one interval
                interval = more[0](this=interval, expression=more[1])
            several = isinstance(interval, exp.Add | exp.Sub)  # 1 HOUR 30 MINUTES is parsed as a sum
            return self.expression(exp.Paren(this=interval)) if several else interval

        def _require_units(self, tokens: Sequence[Any]) -> None:
            """Raise an error for a unit that only sqlglot knows, such as ``h``."""
            units = [(token, part) for token in tokens if token.token_type is TokenType.STRING
                     for part in token.text.split()[1:] if _ONE_UNIT.fullmatch(token.text)]  # fmt: skip
            for amount, token in pairwise(tokens):
                if amount.token_type in _AMOUNTS and token.token_type not in _AMOUNTS and token.text.isidentifier():
                    units.append((token, token.text))
            for token, unit in units:
                if unit.upper() not in _INTERVAL_UNITS:
                    self.raise_error(f"{unit} {_NO_UNIT}", token)

        def _signed_part(self) -> tuple[type[exp.Binary], exp.Expr] | None:
            """Return a further part of an interval that begins with a sign, or comes after one that does, if any."""
            at = self._index
            signed = at < len(self._tokens) and self._tokens[at].token_type in (TokenType.DASH, TokenType.PLUS)
            rest = self._tokens[at + signed : at + signed + 2]
            if len(rest) < 2 or rest[0].token_type not in _AMOUNTS or rest[1].text.upper() not in _INTERVAL_UNITS:
                return None
            is_negative = signed and self._tokens[at].token_type is TokenType.DASH
            self._advance(2 + signed)
            part = exp.Interval(this=exp.Literal.string(rest[0].text), unit=exp.Var(this=rest[1].text.upper()))
            return (exp.Sub if is_negative else exp.Add), part

        def _parse_group(self, skip_group_by_token: bool = False) -> exp.Group | None:
            group = super()._parse_group(skip_group_by_token)
            if group is not None and self._curr and self._curr.token_type in (TokenType.ALIAS, TokenType.VAR):
                self.raise_error(_ALIAS_IN_GROUP_BY)
            return group


def parse_query(text: str) -> exp.Query:
    """Parse one SELECT (or WITH, or UNION); comments are removed.

    Raises:
        MillraceError: if the text does not parse or is not one query; syntax errors have line and column of the text.
    """
    try:
        statements = [statement for statement in parse(text, dialect=StreamingSql) if statement is not None]
    except ParseError as error:
        first = error.errors[0]
        column = first["col"] - len(first["highlight"] or " ") + 1  # sqlglot counts to the end of the token
        raise MillraceError(_problem(text, first["line"], column, first["description"])) from None
    except TokenError as error:
        raise MillraceError(token_problem(text, error, "SQL")) from None
    if len(statements) != 1 or not isinstance(statements[0], exp.Query):
        raise MillraceError(Problem(f"the SQL is {_kind(statements)}", "write one SELECT statement"))
    _remove_comments(statements[0])
    return statements[0]


def without_materialized(text: str) -> str:
    """Return the text of a query with blanks for the MATERIALIZED and NOT MATERIALIZED of its CTEs.

    Spark's grammar has neither. All other words keep their positions.
    """
    tokens = StreamingSql().tokenize(text)
    for place, token in enumerate(tokens):
        if token.text.upper() != _MATERIALIZED or token.token_type is not TokenType.VAR:
            continue
        before, behind = tokens[max(place - 2, 0) : place], tokens[place + 1 : place + 3]
        first = before[-1] if before and before[-1].token_type is TokenType.NOT else token
        alias = before[-2:-1] if first is not token else before[-1:]
        kinds = [each.token_type for each in (*alias, *behind)]
        if len(kinds) == 3 and kinds[:2] == [TokenType.ALIAS, TokenType.L_PAREN] and kinds[2] in _QUERY_STARTS:
            text = text[: first.start] + " " * (token.end + 1 - first.start) + text[token.end + 1 :]
    return text


def parse_expression(text: str) -> exp.Expr:
    """Parse one expression that was generated from a parsed query; comments are removed."""
    expression = parse_one(text, dialect=StreamingSql)
    _remove_comments(expression)
    return expression


def to_sql(node: exp.Expr) -> str:
    """Return the Spark SQL text of a parsed expression."""
    return node.sql(dialect=StreamingSql)


def _remove_comments(tree: exp.Expr) -> None:
    """Remove the comments, which sqlglot would write into the texts by which expressions are compared."""
    for node in tree.walk():
        node.comments = None


def _kind(statements: Sequence[exp.Expr]) -> str:
    """Return what statements that are not one query are."""
    if len(statements) != 1:
        return f"{len(statements)} statements" if statements else "empty"
    statement = statements[0]
    return (statement.name if isinstance(statement, exp.Command) else statement.key).upper()


def _problem(text: str, line: int, column: int, description: str) -> Problem:
    lines = text.splitlines()
    shown = lines[line - 1].rstrip() if 0 < line <= len(lines) else ""
    hint = "correct the SQL there"
    if description == _ALIAS_IN_GROUP_BY:
        hint = "move the alias to the SELECT list, as in SELECT window(at, '10 minutes') AS w ... GROUP BY w"
    if description.endswith(_NO_UNIT):
        hint = "write a unit from MICROSECOND to YEAR, such as INTERVAL 1 HOUR"
    if description.startswith("Required keyword"):  # it names an attribute of one of sqlglot's classes
        description = "an expression is missing"
    description = description.partition(" but got <Token")[0]
    message = f"the SQL does not parse at line {line}, column {column}: {description} in {shown!r}"
    return Problem(message, hint, line=line)


def token_problem(text: str, error: TokenError, what: str) -> Problem:
    """Return the problem of a text with a quote or comment that is not closed; ``what`` names the text."""
    unclosed = re.fullmatch(r"Missing .+ from \d+:(\d+)", str(error.__cause__))
    if unclosed is not None:  # sqlglot gives the line at the end of the text, and the position of the quote
        hint = "close it, and double every quote inside it" if what == "SQL" else "close it"
        return problem_at(text, int(unclosed[1]), "a quote is not closed", hint, what)
    if isinstance(error.__cause__, IndexError) and "/*" in text:  # sqlglot reads beyond the end of the text
        return problem_at(text, text.rfind("/*"), "a comment is not closed", "close it with */", what)
    return Problem(f"the {what} does not parse: {error.__cause__ or error}", f"correct the {what}")


def problem_at(text: str, start: int | None, message: str, hint: str, what: str = "SQL") -> Problem:
    """Return a problem at a position in the text; ``start`` counts characters from 0, None is the whole text."""
    if start is None:
        return Problem(f"{message} in the {what}", hint)
    line = text.count("\n", 0, start) + 1
    column = start - text.rfind("\n", 0, start)
    return Problem(f"{message} (line {line}, column {column} of the {what})", hint, line=line)


def start_of(node: exp.Expr) -> int | None:
    """Return the start of the first name in an expression; None if it has no names.

    What a CTE stands for is elsewhere in the text, so its names do not count.
    """
    own = node.walk(prune=lambda each: each is not node and FROM_CTE in each.meta)
    return min((each.meta["start"] for each in own if "start" in each.meta), default=None)


class Keywords:
    """Keyword positions in a SQL text that parses."""

    def __init__(self, text: str) -> None:
        self._tokens = StreamingSql().tokenize(text)

    def before(self, node: exp.Expr, *kinds: TokenType) -> int | None:
        """Return the start of the last keyword of these kinds that is not after the first name in ``node``."""
        limit = start_of(node)
        starts = [token.start for token in self._tokens if token.token_type in kinds]
        return max((start for start in starts if limit is None or start <= limit), default=limit)
