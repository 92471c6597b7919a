use kilim_bson::{RawValue, Value, doc};

use super::JsonSchema;

/// Schemas and documents of all kinds: each pair must be judged alike by both ways through a schema.
#[test]
fn a_report_has_rules_exactly_where_a_document_does_not_match() {
    let schemas = [
        doc! {},
        doc! {"required": ["a", "b"]},
        doc! {"properties": {"a": {"bsonType": "int", "minimum": 2}}},
        doc! {"properties": {"a": {"minLength": 2, "pattern": "^x"}}, "additionalProperties": false},
        doc! {"patternProperties": {"^[ab]": {"bsonType": ["int", "array"]}}, "minProperties": 2},
        doc! {"properties": {"a": {"items": [{"bsonType": "int"}], "additionalItems": {"maximum": 1}}}},
        doc! {"properties": {"a": {"uniqueItems": true, "maxItems": 2}}},
        doc! {"dependencies": {"a": ["b"], "b": {"required": ["c"]}}},
        doc! {"anyOf": [{"required": ["a"]}, {"required": ["c"]}], "not": {"required": ["d"]}},
        doc! {"oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
        doc! {"properties": {"a": {"enum": [{"x": 1, "y": 2}, "xyz"]}, "b": {"multipleOf": 0.1}}},
        doc! {"type": "string"},
    ];
    let documents = [
        doc! {},
        doc! {"a": 1},
        doc! {"a": 2, "b": 0.35},
        doc! {"a": "xyz", "b": 0.3},
        doc! {"a": "y"},
        doc! {"a": [1, 1, 2], "c": 1},
        doc! {"a": ["x", 2]},
        doc! {"a": {"y": 2, "x": 1.0}},
        doc! {"b": 1, "d": [1, 2]},
    ];
    for schema in &schemas {
        let parsed = JsonSchema::parse(schema.as_raw()).unwrap();
        for document in &documents {
            let report = parsed.report(document.as_raw());
            let rules = report.get("schemaRulesNotSatisfied").and_then(RawValue::as_array);
            let silent = rules.is_some_and(|rules| rules.is_empty());
            assert_eq!(parsed.matches(document.as_raw()), silent, "{schema:?} of {document:?}: {report:?}");
        }
    }
}

#[test]
fn a_long_array_has_its_first_repetition_found_by_sorting() {
    let unique = JsonSchema::parse(doc! {"properties": {"a": {"uniqueItems": true}}}.as_raw()).unwrap();
    let mut items: Vec<Value> = (0..200).map(|n| Value::Document(doc! {"n": n, "m": 1})).collect();
    assert!(unique.matches(doc! {"a": items.clone()}.as_raw()));
    items.push(Value::Document(doc! {"m": 1.0, "n": 7}));
    let document = doc! {"a": items};
    assert!(!unique.matches(document.as_raw()));
    let report = format!("{:?}", unique.report(document.as_raw()));
    assert!(report.contains("duplicatedValue"), "{report}");
}
