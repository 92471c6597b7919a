//! Why a value does not satisfy a schema, in the words of mongod's `errInfo`.
//!
//! Rules are told in one order, whatever the order they were written in. Runs after a document was refused, so it
//! may allocate.

use kilim_bson::{Document, RawArray, RawDocument, RawValue, Value, doc};

use super::encrypt::Encrypted;
use super::matching::duplicate;
use super::object::{Dependency, ObjectRules};
use super::{Additional, ArrayRules, Items, Logic, Scalar, Schema};

impl Schema {
    /// The report on a whole document.
    pub(super) fn report_document(&self, document: RawDocument<'_>) -> Document {
        if let Some(written) = &self.impossible {
            return always_false(written);
        }
        let mut report = doc! {"operatorName": "$jsonSchema"};
        self.push_titles(&mut report);
        report.push("schemaRulesNotSatisfied", self.rules_not_satisfied(RawValue::Document(document)));
        report
    }

    /// What goes into `details` of whatever this schema is a part of.
    fn report(&self, value: RawValue<'_>) -> Value {
        match &self.impossible {
            Some(written) => Value::Document(always_false(written)),
            None => Value::from(self.rules_not_satisfied(value)),
        }
    }

    fn rules_not_satisfied(&self, value: RawValue<'_>) -> Vec<Document> {
        let mut rules = Vec::new();
        for (specified, scalar) in &self.scalar {
            if !scalar.matches(value) {
                rules.push(scalar_report(specified, scalar, value));
            }
        }
        if let (RawValue::Array(array), Some(of_arrays)) = (value, &self.array) {
            of_arrays.report(array, &mut rules);
        }
        if self.encrypted.as_ref().is_some_and(|encrypted| !encrypted.matches(value)) {
            let reason = match Encrypted::is_encrypted(value) {
                true => "encrypted value has wrong type",
                false => "value was not encrypted",
            };
            rules.push(doc! {"operatorName": "encrypt", "reason": reason});
        }
        if let (RawValue::Document(document), Some(of_objects)) = (value, &self.object) {
            of_objects.report(document, &mut rules);
        }
        self.logic.report(value, &mut rules);
        if let Some((specified, types)) = &self.types
            && !types.contains(value.element_type())
        {
            let mut report = rule(specified, Some("type did not match"));
            report.push("consideredValue", value.to_value());
            report.push("consideredType", value.element_type().name());
            rules.push(report);
        }
        rules
    }

    fn push_titles(&self, report: &mut Document) {
        // mongod leaves out the titles of what can never be satisfied: the schema as written has them.
        if self.impossible.is_some() {
            return;
        }
        if let Some(title) = &self.title {
            report.push("title", &**title);
        }
        if let Some(description) = &self.description {
            report.push("description", &**description);
        }
    }
}

fn always_false(written: &Document) -> Document {
    doc! {
        "operatorName": "$jsonSchema",
        "specifiedAs": doc! {"$jsonSchema": written.clone()},
        "reason": "expression always evaluates to false",
    }
}

/// The beginning that most reports share. The keyword is the first that was specified.
fn rule(specified: &Document, reason: Option<&str>) -> Document {
    let keyword = specified.iter().next().map_or("", |(name, _)| name);
    let mut report = doc! {"operatorName": keyword, "specifiedAs": specified.clone()};
    if let Some(reason) = reason {
        report.push("reason", reason);
    }
    report
}

fn scalar_report(specified: &Document, scalar: &Scalar, value: RawValue<'_>) -> Document {
    let reason = match scalar {
        Scalar::MultipleOf(_) => "considered value is not a multiple of the specified value",
        Scalar::Maximum { .. } | Scalar::Minimum { .. } => "comparison failed",
        Scalar::Pattern(_) => "regular expression did not match",
        Scalar::MaxLength(_) | Scalar::MinLength(_) => "specified string length was not satisfied",
    };
    let mut report = rule(specified, Some(reason));
    report.push("consideredValue", value.to_value());
    report
}

impl ArrayRules {
    fn report(&self, array: RawArray<'_>, rules: &mut Vec<Document>) {
        let length = array.len() as i64;
        let bounds = [
            ("minItems", self.min.as_ref().filter(|min| length < min.number)),
            ("maxItems", self.max.as_ref().filter(|max| length > max.number)),
        ];
        for (keyword, bound) in bounds {
            let Some(bound) = bound else { continue };
            let specified = [(keyword, bound.written.clone())].into_iter().collect();
            let mut report = rule(&specified, Some("array did not match specified length"));
            report.push("consideredValue", Value::Array(array.to_array()));
            report.push("numberOfItems", count(length));
            rules.push(report);
        }
        if self.unique
            && let Some(duplicated) = duplicate(array)
        {
            let mut report = rule(&doc! {"uniqueItems": true}, Some("found a duplicate item"));
            report.push("consideredValue", Value::Array(array.to_array()));
            report.push("duplicatedValue", duplicated.to_value());
            rules.push(report);
        }
        match &self.items {
            None => {}
            Some(Items::Each(schema)) => {
                rules.extend(item_report(
                    "items",
                    "At least one item did not match the sub-schema",
                    schema,
                    array,
                    0,
                ));
            }
            Some(Items::List(schemas)) => self.report_list(schemas, array, rules),
        }
    }

    fn report_list(&self, schemas: &[Schema], array: RawArray<'_>, rules: &mut Vec<Document>) {
        let failing =
            array.iter().zip(schemas).enumerate().filter(|(_, (item, schema))| !schema.matches(*item));
        let details: Vec<Document> = failing
            .map(|(at, (item, schema))| doc! {"itemIndex": at as i64, "details": schema.report(item)})
            .collect();
        if !details.is_empty() {
            rules.push(doc! {"operatorName": "items", "details": details});
        }
        match &self.additional {
            None => {}
            Some(Additional::Forbidden) => {
                let beyond: Vec<Value> = array.iter().skip(schemas.len()).map(RawValue::to_value).collect();
                if !beyond.is_empty() {
                    let mut report = rule(&doc! {"additionalItems": false}, Some("found additional items"));
                    report.push("additionalItems", beyond);
                    rules.push(report);
                }
            }
            Some(Additional::Like(schema)) => rules.extend(item_report(
                "additionalItems",
                "At least one additional item did not match the sub-schema",
                schema,
                array,
                schemas.len(),
            )),
        }
    }
}

/// The first item, from a position on, that one schema does not match.
fn item_report(
    keyword: &str,
    reason: &str,
    schema: &Schema,
    array: RawArray<'_>,
    from: usize,
) -> Option<Document> {
    let (at, item) = array.iter().enumerate().skip(from).find(|(_, item)| !schema.matches(*item))?;
    let mut report = doc! {"operatorName": keyword};
    schema.push_titles(&mut report);
    report.push("reason", reason);
    report.push("itemIndex", at as i32);
    report.push("details", schema.report(item));
    Some(report)
}

impl ObjectRules {
    fn report(&self, document: RawDocument<'_>, rules: &mut Vec<Document>) {
        self.report_properties(document, rules);
        self.report_additional(document, rules);
        self.report_patterns(document, rules);
        let absent: Vec<Value> = missing(&self.required, document);
        if !absent.is_empty() {
            let required: Vec<Value> = self.required.iter().map(|name| Value::from(&**name)).collect();
            let mut report = rule(&doc! {"required": required}, None);
            report.push("missingProperties", absent);
            rules.push(report);
        }
        let number = document.iter().count() as i64;
        let bounds = [
            ("minProperties", self.min.as_ref().filter(|min| number < min.number)),
            ("maxProperties", self.max.as_ref().filter(|max| number > max.number)),
        ];
        for (keyword, bound) in bounds {
            let Some(bound) = bound else { continue };
            let specified = [(keyword, bound.written.clone())].into_iter().collect();
            let mut report = rule(&specified, Some("specified number of properties was not satisfied"));
            report.push("numberOfProperties", count(number));
            rules.push(report);
        }
        self.report_dependencies(document, rules);
    }

    fn report_properties(&self, document: RawDocument<'_>, rules: &mut Vec<Document>) {
        let failing = self.properties.iter().filter_map(|(name, schema)| {
            let value = document.get(name).filter(|value| !schema.matches(*value))?;
            let mut report = doc! {"propertyName": &**name};
            schema.push_titles(&mut report);
            report.push("details", schema.report(value));
            Some(report)
        });
        let failing: Vec<Document> = failing.collect();
        if !failing.is_empty() {
            rules.push(doc! {"operatorName": "properties", "propertiesNotSatisfied": failing});
        }
    }

    fn report_additional(&self, document: RawDocument<'_>, rules: &mut Vec<Document>) {
        let mut additional = document.iter().filter(|(name, _)| self.is_additional(name));
        match &self.additional {
            None => {}
            Some(Additional::Forbidden) => {
                let names: Vec<Value> = additional.map(|(name, _)| Value::from(name)).collect();
                if !names.is_empty() {
                    let mut report = rule(&doc! {"additionalProperties": false}, None);
                    report.push("additionalProperties", names);
                    rules.push(report);
                }
            }
            Some(Additional::Like(schema)) => {
                let Some((name, value)) = additional.find(|(_, value)| !schema.matches(*value)) else {
                    return;
                };
                let mut report = doc! {"operatorName": "additionalProperties"};
                schema.push_titles(&mut report);
                report.push("reason", "at least one additional property did not match the subschema");
                report.push("failingProperty", name);
                report.push("details", schema.report(value));
                rules.push(report);
            }
        }
    }

    /// Of each pattern the first field that it catches and does not match.
    fn report_patterns(&self, document: RawDocument<'_>, rules: &mut Vec<Document>) {
        let failing = self.patterns.iter().filter_map(|(regex, schema)| {
            let (name, value) =
                document.iter().find(|(name, value)| regex.is_match(name) && !schema.matches(*value))?;
            let mut report = doc! {"propertyName": name};
            schema.push_titles(&mut report);
            report.push("regexMatched", regex.pattern());
            report.push("details", schema.report(value));
            Some(report)
        });
        let failing: Vec<Document> = failing.collect();
        if !failing.is_empty() {
            rules.push(doc! {"operatorName": "patternProperties", "details": failing});
        }
    }

    fn report_dependencies(&self, document: RawDocument<'_>, rules: &mut Vec<Document>) {
        let failing = self
            .dependencies
            .iter()
            .filter(|(name, dependency)| document.get(name).is_some() && !dependency.matches(document));
        let failing: Vec<Document> = failing
            .map(|(name, dependency)| {
                let mut report = doc! {"conditionalProperty": &**name};
                match dependency {
                    Dependency::Properties(names) => {
                        report.push("missingProperties", missing(names, document));
                    }
                    Dependency::Schema(schema) => {
                        report.push("details", schema.report(RawValue::Document(document)));
                    }
                }
                report
            })
            .collect();
        if !failing.is_empty() {
            rules.push(doc! {"operatorName": "dependencies", "failingDependencies": failing});
        }
    }
}

fn missing(names: &[Box<str>], document: RawDocument<'_>) -> Vec<Value> {
    let absent = names.iter().filter(|name| document.get(name).is_none());
    absent.map(|name| Value::from(&**name)).collect()
}

impl Logic {
    fn report(&self, value: RawValue<'_>, rules: &mut Vec<Document>) {
        let failing = |schemas: &[Schema]| -> Vec<Document> {
            let failing = schemas.iter().enumerate().filter(|(_, schema)| !schema.matches(value));
            failing
                .map(|(at, schema)| {
                    let mut report = doc! {"index": at as i32};
                    schema.push_titles(&mut report);
                    report.push("details", schema.report(value));
                    report
                })
                .collect()
        };
        let not_satisfied = |keyword: &str, schemas: Vec<Document>| {
            doc! {"operatorName": keyword, "schemasNotSatisfied": schemas}
        };
        let of_all = failing(&self.all_of);
        if !of_all.is_empty() {
            rules.push(not_satisfied("allOf", of_all));
        }
        let of_any = failing(&self.any_of);
        if !of_any.is_empty() && of_any.len() == self.any_of.len() {
            rules.push(not_satisfied("anyOf", of_any));
        }
        let matching = self.one_of.iter().enumerate().filter(|(_, schema)| schema.matches(value));
        let matching: Vec<Value> = matching.map(|(at, _)| Value::Int32(at as i32)).collect();
        match matching.len() {
            0 if !self.one_of.is_empty() => rules.push(not_satisfied("oneOf", failing(&self.one_of))),
            0 | 1 => {}
            _ => rules.push(doc! {
                "operatorName": "oneOf",
                "reason": "more than one subschema matched",
                "matchingSchemaIndexes": matching,
            }),
        }
        if self.not.as_ref().is_some_and(|schema| schema.matches(value)) {
            rules.push(doc! {"operatorName": "not", "reason": "child expression matched"});
        }
        if let Some(specified) = &self.one_of_values
            && !self.lists(value)
        {
            let mut report = rule(specified, Some("value was not found in enum"));
            report.push("consideredValue", value.to_value());
            rules.push(report);
        }
    }
}

/// An int where it fits one.
fn count(number: i64) -> Value {
    i32::try_from(number).map_or(Value::Int64(number), Value::Int32)
}
