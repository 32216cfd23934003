"""Whatever schema a server lists, there is a token mask: of all of it, or of it without what is named."""

import json
from pathlib import Path

import jsonschema_rs
import pytest
from typer.testing import CliRunner

from adapters.llama_cpp.decoding_schema import decoding_schema, restated
from adapters.llama_cpp.vocabulary import open_vocabulary
from adapters.llama_cpp.widening import widened
from adapters.ports import ModelUnusable, SchemaNotCompilable
from nexus_gateway.bench import schemas
from nexus_gateway.cli.main import app
from tool_registry.schema import normalise

DATA = Path(__file__).parents[1].parent / "shared" / "data"
FILES = [DATA / name for name in ("registry.jsonl", "wild_tools.jsonl", "bfcl_tools.jsonl")]
STRING = {"type": "string"}
ODD = {
    "@0xKoda_WireMCP/check_ip_threats": "pattern",
    "@knight0zh_mssql-mcp-server/query": "oneOf",
    "@alan5543_flight-search-mcp/scrape_flights_tool": "uniqueItems",
    "bfcl/extract_parameters_v1": "contradiction",
    "@ibproduct_ib-mcp-cache-server/store_data": "malformed",
    "@6_mcp-server-rubygems/search_rubygems": "malformed",
}


def _object(**known):
    return {"type": "object", "properties": known, "required": list(known)}


def _deep(levels):
    schema = STRING
    for name in levels:
        schema = _object(**{name: schema})
    return schema


@pytest.fixture(scope="module")
def masks(smollm):
    with open_vocabulary(smollm) as vocabulary:
        yield vocabulary.masks()


def _shortest(masks, mask):
    return json.loads(b"".join(masks.pieces[token] for token in mask.closing(400)))


@pytest.mark.parametrize(
    "schema",
    [
        _object(**{'say "hi"': STRING, "a.b": STRING, "😀 数": STRING, "back\\slash": STRING, "": STRING}),
        _deep("fedcba"),
        _object(colour={"enum": [f"colour number {n}" for n in range(500)]}),
        _object(
            pair={
                "type": "array",
                "prefixItems": [STRING, {"type": "integer"}],
                "items": False,
                "minItems": 2,
            }
        ),
        _object(maybe={"type": ["string", "null"]}, other={"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        _object(day={**STRING, "format": "date"}, code={**STRING, "pattern": "^[A-Z]{3}-[0-9]{4}$"}),
        _object(n={"type": "integer", "minimum": 3, "exclusiveMaximum": 90, "multipleOf": 7}),
        _object(map={"type": "object", "patternProperties": {"^x-": STRING}, "additionalProperties": False}),
        _object(map={"type": "object", "additionalProperties": {"type": "number"}, "minProperties": 1}),
        {"allOf": [_object(a=STRING), {"$ref": "#/$defs/B"}], "$defs": {"B": _object(b={"const": 1})}},
        {
            "$ref": "#/$defs/Tree",
            "$defs": {"Tree": {**_object(name=STRING), "additionalProperties": {"$ref": "#/$defs/Tree"}}},
        },
        _object(how={"oneOf": [_object(kind={"const": "a"}), _object(kind={"const": "b"}, by=STRING)]}),
        {**_object(keys={"type": "object", "propertyNames": STRING}), "title": "said twice"},
        _object(
            blob={**STRING, "format": "binary"}, set={"type": "array", "items": STRING, "uniqueItems": False}
        ),
        _object(maybe={"anyOf": [{"not": {}}, STRING]}),
    ],
)
def test_the_mask_says_all_of_a_schema_and_its_shortest_value_is_valid(masks, schema):
    mask = masks.compile(schema)
    assert mask.widened_for == ()
    assert jsonschema_rs.validator_for(schema).is_valid(_shortest(masks, mask))


@pytest.mark.parametrize(
    ("schema", "reasons"),
    [
        (_object(a={**STRING, "pattern": "(?=x)y"}, b={**STRING, "pattern": "^b$"}), ("pattern",)),
        (_object(a={**STRING, "format": "iri"}), ("format",)),
        ({**_object(a=STRING), "not": {"required": ["b"]}}, ("not",)),
        ({**_object(a=STRING), "if": {"required": ["a"]}, "then": {"required": ["b"]}}, ("if",)),
        (_object(a={"type": "array", "uniqueItems": True}), ("uniqueItems",)),
        (_object(a={"type": "array", "uniqueItems": True}, b={**STRING, "pattern": "("}), ("pattern", "uniqueItems")),
        (_object(a={"oneOf": [STRING, {**STRING, "maxLength": 3}]}), ("oneOf",)),
        (_object(a={"type": "integer", "minimum": 5, "maximum": 3}), ("bounds",)),
        (_object(a={"type": "object", "patternProperties": {"^a": STRING, "a$": {"type": "null"}}, "required": ["a"]}), ("patternProperties",)),
        (_object(a={"$ref": "https://example.test/schema.json"}), ("reference",)),
        (_object(a={"$ref": "#/nowhere"}), ("reference",)),
        (_object(a={"type": "strnig"}), ("malformed",)),
        (_object(a={"type": "array", "enum": ["x", "y"]}), ("contradiction",)),
        (_deep("a" * 300), ("malformed",)),
        (_deep("a" * 3000), ("shape",)),
        ({"enum": []}, ("contradiction",)),
        ({"type": "integer", "enum": ["a"]}, ("shape",)),
        (None, ("no schema",)),
        ([], ("malformed",)),
    ],
)  # fmt: skip
def test_what_a_mask_can_not_say_is_left_out_by_name(masks, schema, reasons):
    mask = masks.compile(schema)
    assert mask.widened_for == reasons
    _shortest(masks, mask)


def test_what_is_left_out_is_only_what_is_at_fault(masks):
    schema = _object(a={**STRING, "pattern": "(?=x)y", "maxLength": 4}, b={**STRING, "pattern": "^bee$"})
    kept = widened(schema, lambda part: masks._attempt(part)[1]).schema["properties"]
    assert kept == {"a": {**STRING, "maxLength": 4}, "b": {**STRING, "pattern": "^bee$"}}
    assert _shortest(masks, masks.compile(schema))["b"] == "bee"


def test_what_is_no_json_is_refused(masks):
    with pytest.raises(SchemaNotCompilable, match="not usable JSON"):
        masks.compile({"const": {1, 2}})


def test_instructions_to_the_mask_compiler_have_no_effect(masks):
    schema = {"type": "object", "x-guidance": {"whitespace_flexible": True}, "allOf": [_object(a=STRING)]}
    assert masks.compile(schema).closing(50) == masks.compile({**_object(a=STRING)}).closing(50)


def test_restating_touches_schemas_and_not_names_or_values():
    named = _object(format=STRING, uniqueItems=STRING, propertyNames=STRING)
    values = {"enum": [{"format": "x", "uniqueItems": False}], "default": {"format": "x"}}
    for schema in (named, values):
        assert restated(schema) == schema


def test_objects_within_tuples_and_lists_are_closed_and_parts_of_conjunctions_are_not():
    within = decoding_schema(
        {"type": "array", "prefixItems": [_object(a=STRING)], "items": _object(b=STRING)}
    )
    assert within["prefixItems"][0]["additionalProperties"] is False
    assert within["items"]["additionalProperties"] is False
    joined = {"$ref": "#/$defs/A", "properties": {"b": STRING}, "$defs": {"A": _object(a=STRING)}}
    assert decoding_schema(joined) == joined


@pytest.mark.skipif(not DATA.exists(), reason="needs the shared data")
def test_a_sample_of_real_schemas_and_every_odd_one_has_a_mask(masks):
    listed = [one for file in FILES for one in schemas.read_schemas(file)]
    assert len(listed) == 11_128
    sample = schemas.compile_all(schemas.sampled(listed, 200, seed=7), masks)
    figures = schemas.as_json(sample)
    assert (figures["failed"], figures["shortest_invalid"]) == (0, 0)
    assert figures["unwidened"] >= 0.98 * len(sample)
    odd = schemas.compile_all([one for one in listed if one.tool in ODD], masks)
    assert {one.tool for one in odd} == set(ODD)
    assert all(one.widened_for == (ODD[one.tool],) and not one.failure for one in odd)


@pytest.mark.skipif(not DATA.exists(), reason="needs the shared data")
def test_the_parameters_that_a_writer_fills_have_masks_too(masks):
    listed = schemas.sampled([one for file in FILES for one in schemas.read_schemas(file)], 60, seed=11)
    parts = [
        sub for one in listed for sub in normalise(one.schema)["properties"].values() if isinstance(sub, dict)
    ]
    assert len(parts) > 100
    assert not [part for part in parts[:200] if masks.compile(part).widened_for]


def test_the_command_names_what_is_left_out(tmp_path, masks):
    tools = tmp_path / "tools.jsonl"
    rows = [_object(a=STRING), _object(a={**STRING, "pattern": "(?=x)y"}), None]
    tools.write_text(
        "\n".join(
            json.dumps({"server": "s", "name": f"t{n}", "inputSchema": row}) for n, row in enumerate(rows)
        )
    )
    result = CliRunner().invoke(app, ["bench", "schemas", "--tools", str(tools)])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout.splitlines()[-1]) == {
        "schemas": 3,
        "unwidened": 1,
        "unwidened_share": 0.33333,
        "widened": {"pattern": 1, "no schema": 1},
        "failed": 0,
        "shortest_valid": 1,
        "shortest_invalid": 1,
    }
    assert "s/t1" in result.stdout
    missing = CliRunner().invoke(app, ["bench", "schemas", "--tools", str(tmp_path / "no.jsonl"), "--json"])
    assert missing.exit_code == 1
    assert "no.jsonl can't be read" in " ".join(missing.stderr.split())


def test_a_vocabulary_that_was_closed_is_refused_not_read(smollm):
    with open_vocabulary(smollm) as vocabulary:
        assert vocabulary.count("two words") == 2
    with pytest.raises(ModelUnusable, match="is closed"):
        vocabulary.count("two words")
