//! What a document breaks, told: the variant, the path and the rule, found in what the validator explains.

use kilim_bson::{Document, RawDocument, RawValue, doc};
use kilim_query::validator::Explanation;

use super::{Breach, Clause, Polymorphic, Variant};

/// The breach that a validator explains. `variant` is none for documents of a variant that was not declared.
pub(super) fn of(variant: Option<&Variant>, explanation: Explanation) -> Breach {
    let Explanation { details, note } = explanation;
    let (clause, schema) = failed_clause(variant, details.as_raw());
    let fault = Fault::first_of(schema);
    let name = variant.map(|variant| variant.name.clone());
    let whose = match (&clause, &name) {
        (Some(Clause::Variant(owner)), Some(own)) if owner != own => {
            format!(" of '{owner}', which it extends")
        }
        (Some(Clause::Base), _) => " of 'base'".to_owned(),
        (Some(Clause::Extra), _) => " (extra: \"reject\")".to_owned(),
        _ => String::new(),
    };
    let what = match &name {
        Some(name) => format!("the document is no valid '{name}'"),
        None => "the document is not valid".to_owned(),
    };
    let message = format!("{what}: '{}' breaks the rule '{}'{whose}", fault.path, fault.rule);
    Breach {
        variant: name,
        path: fault.path.into(),
        rule: fault.rule.into(),
        expected: fault.expected,
        message,
        details,
        note,
    }
}

/// The first clause of a variant's validator that failed, and what is said of it.
fn failed_clause<'d>(
    variant: Option<&Variant>,
    details: RawDocument<'d>,
) -> (Option<Clause>, RawDocument<'d>) {
    let Some(variant) = variant else { return (Some(Clause::Base), details) };
    let failed = details.get("clausesNotSatisfied").and_then(RawValue::as_array).and_then(|list| list.get(0));
    let Some(failed) = failed.and_then(RawValue::as_document) else {
        return (variant.clauses.first().cloned(), details);
    };
    let index = match failed.get("index") {
        Some(RawValue::Int32(index)) => index as usize,
        Some(RawValue::Int64(index)) => index as usize,
        _ => 0,
    };
    let inner = failed.get("details").and_then(RawValue::as_document).unwrap_or(details);
    (variant.clauses.get(index).cloned(), inner)
}

/// Where a schema is broken first.
struct Fault {
    path: String,
    rule: String,
    expected: Option<Document>,
}

impl Fault {
    /// Follows a report from rule to rule, down to the one that names no further document.
    fn first_of(report: RawDocument<'_>) -> Fault {
        let mut fault = Fault { path: String::new(), rule: "$jsonSchema".to_owned(), expected: None };
        let first = |document: RawDocument<'_>, name: &str| -> Option<Document> {
            document.get(name)?.as_array()?.get(0)?.as_document().map(|found| found.to_document())
        };
        let mut rule = first(report, "schemaRulesNotSatisfied");
        while let Some(current) = rule.take() {
            if let Some(name) = current.get("operatorName").and_then(RawValue::as_str) {
                fault.rule = name.to_owned();
            }
            let specified = current.get("specifiedAs").and_then(RawValue::as_document);
            fault.expected = specified.map(|specified| specified.to_document());
            if let Some(property) = first(current.as_raw(), "propertiesNotSatisfied") {
                fault.enter(property.get("propertyName"));
                rule = first(property.as_raw(), "details");
                continue;
            }
            let named =
                |list: &str| current.get(list).and_then(RawValue::as_array).and_then(|list| list.get(0));
            if let Some(name) = named("missingProperties").or_else(|| named("additionalProperties")) {
                fault.enter(Some(name));
            }
            if let Some(element) = current.get("itemIndex") {
                fault.enter_element(element);
            }
            rule = first(current.as_raw(), "details");
        }
        fault
    }

    fn enter(&mut self, name: Option<RawValue<'_>>) {
        if let Some(name) = name.and_then(|name| name.as_str()) {
            if !self.path.is_empty() {
                self.path.push('.');
            }
            self.path.push_str(name);
        }
    }

    fn enter_element(&mut self, index: RawValue<'_>) {
        let index = match index {
            RawValue::Int32(index) => i64::from(index),
            RawValue::Int64(index) => index,
            _ => return,
        };
        self.enter(Some(RawValue::String(&index.to_string())));
    }
}

impl Polymorphic {
    fn about_discriminator(&self, message: String, value: Option<RawValue<'_>>) -> Breach {
        let names = self.variants.iter().map(|variant| RawValue::String(&variant.name).to_value());
        let names: kilim_bson::Array = names.collect();
        let expected = doc! {"enum": names};
        // What MongoDB says of `{$jsonSchema: {required: [discriminator], properties: {discriminator: {enum: names}}}}`.
        let rule = match value {
            None => doc! {
                "operatorName": "required",
                "specifiedAs": {"required": [&*self.discriminator]},
                "missingProperties": [&*self.discriminator],
            },
            Some(value) => doc! {
                "operatorName": "properties",
                "propertiesNotSatisfied": [{
                    "propertyName": &*self.discriminator,
                    "details": [{
                        "operatorName": "enum", "specifiedAs": expected.clone(),
                        "reason": "value was not found in enum", "consideredValue": value.to_value(),
                    }],
                }],
            },
        };
        Breach {
            variant: None,
            path: self.discriminator.clone(),
            rule: "discriminator".into(),
            expected: Some(expected),
            message,
            details: doc! {"operatorName": "$jsonSchema", "schemaRulesNotSatisfied": [rule]},
            note: None,
        }
    }

    pub(super) fn without_discriminator(&self) -> Breach {
        let message =
            format!("the document has no '{}', which says of which variant it is", self.discriminator);
        self.about_discriminator(message, None)
    }

    pub(super) fn unknown_variant(&self, value: Option<RawValue<'_>>) -> Breach {
        let shown = shown(&self.discriminator, value);
        let names: Vec<String> = self.variants.iter().map(|variant| format!("'{}'", variant.name)).collect();
        self.about_discriminator(format!("{shown} names no variant: there are {}", names.join(", ")), value)
    }

    pub(super) fn named_in_array(&self) -> Breach {
        let message = format!("'{}' lies in an array, so it names no one variant", self.discriminator);
        self.about_discriminator(message, None)
    }

    pub(super) fn changed_variant(&self, old: RawValue<'_>, new: RawValue<'_>) -> Breach {
        let (old, shown) = (shown(&self.discriminator, Some(old)), shown(&self.discriminator, Some(new)));
        self.about_discriminator(format!("{old} cannot become {shown} (onTypeChange: \"reject\")"), Some(new))
    }
}

fn shown(path: &str, value: Option<RawValue<'_>>) -> String {
    let mut document = Document::new();
    if let Some(value) = value {
        document.push(path, value);
    }
    kilim_query::text::document(document.as_raw())
}
