//! The tree as a document again: `parsedQuery` of explain, and the filters of its stages.

use kilim_bson::{Array, Document, RawValue, Value, Writer};

use super::{Comparison, Filter, InList, Predicate};

impl Comparison {
    pub fn operator(self) -> &'static str {
        match self {
            Comparison::Eq => "$eq",
            Comparison::Lt => "$lt",
            Comparison::Lte => "$lte",
            Comparison::Gt => "$gt",
            Comparison::Gte => "$gte",
        }
    }

    /// The name of [`Predicate::Expr`].
    pub fn expr_operator(self) -> &'static str {
        match self {
            Comparison::Eq => "$_internalExprEq",
            Comparison::Lt => "$_internalExprLt",
            Comparison::Lte => "$_internalExprLte",
            Comparison::Gt => "$_internalExprGt",
            Comparison::Gte => "$_internalExprGte",
        }
    }
}

impl Filter {
    /// The filter as explain prints it: children in mongod's order.
    pub fn to_document(&self) -> Document {
        let mut sorted = self.clone();
        sorted.sort();
        sorted.written_document()
    }

    fn written_document(&self) -> Document {
        let list = |name: &str, children: &[Filter]| {
            let children: Vec<Document> = children.iter().map(Filter::written_document).collect();
            [(name, Value::from(children))].into_iter().collect()
        };
        match self {
            Filter::True => Document::new(),
            Filter::False => always_false(),
            Filter::And(children) => list("$and", children),
            Filter::Or(children) => list("$or", children),
            Filter::Nor(children) if matches!(children[..], [Filter::True]) => always_false(),
            Filter::Nor(children) => list("$nor", children),
            Filter::Field { path, predicate } => field(path.as_str(), predicate),
            Filter::JsonSchema(schema) => {
                [("$jsonSchema", Value::Document(schema.written().clone()))].into_iter().collect()
            }
            Filter::Text(query) => query.to_document(),
            Filter::Expr(expression) => [("$expr", expression.to_value())].into_iter().collect(),
        }
    }
}

fn always_false() -> Document {
    [("$alwaysFalse", Value::Int32(1))].into_iter().collect()
}

fn field(path: &str, predicate: &Predicate) -> Document {
    let wrap = |name: &str, inner: Document| [(name, Value::Document(inner))].into_iter().collect();
    let nor = |inner: Document| [("$nor", Value::from(vec![inner]))].into_iter().collect();
    match predicate {
        // Explain does not print `$not` within `$not`.
        Predicate::Not(inner) => match &**inner {
            Predicate::Not(_) => nor(field(path, inner)),
            inner => wrap(path, wrap("$not", operators(inner))),
        },
        Predicate::Geo(geo) if geo.field_in_buckets().is_some() => {
            let mut region = Document::new();
            geo.written().iter().for_each(|(_, operand)| region.push("withinRegion", operand));
            geo.field_in_buckets().into_iter().for_each(|field| region.push("field", field));
            wrap("$_internalBucketGeoWithin", region)
        }
        predicate => wrap(path, operators(predicate)),
    }
}

/// A predicate without its path: `{$gt: 1}`.
fn operators(predicate: &Predicate) -> Document {
    let mut writer = Writer::new();
    write_operators(&mut writer, predicate);
    writer.finish()
}

fn write_operators(writer: &mut Writer, predicate: &Predicate) {
    let document = |writer: &mut Writer, name: &str, document: Document| {
        writer.append(name, RawValue::Document(document.as_raw()));
    };
    let array = |writer: &mut Writer, name: &str, values: Array| {
        writer.append(name, RawValue::Array(values.as_raw()));
    };
    match predicate {
        Predicate::Compare(comparison, value) => writer.append(comparison.operator(), value.as_raw()),
        Predicate::Expr(comparison, value) => writer.append(comparison.expr_operator(), value.as_raw()),
        Predicate::In(list) => array(writer, "$in", in_values(list)),
        Predicate::Regex(regex) => {
            writer.append("$regex", RawValue::String(regex.pattern()));
            if !regex.options().is_empty() {
                writer.append("$options", RawValue::String(regex.options()));
            }
        }
        Predicate::Exists => writer.append("$exists", RawValue::Bool(true)),
        Predicate::Type(types) => {
            let alias = types.is_number().then(|| Value::from("number"));
            array(writer, "$type", alias.into_iter().chain(types.codes().map(Value::Int32)).collect());
        }
        Predicate::Mod { divisor, remainder } => {
            array(writer, "$mod", [*divisor, *remainder].map(Value::Int64).into_iter().collect());
        }
        Predicate::Size(size) => writer.append("$size", RawValue::Int32(*size as i32)),
        Predicate::Bits(bits) => {
            let positions = bits.positions().iter().map(|&position| Value::Int32(position as i32));
            array(writer, bits.kind().operator(), positions.collect());
        }
        Predicate::Geo(geo) => writer.append_elements(geo.written().as_raw().elements()),
        Predicate::Near(near) => writer.append_elements(near.written().as_raw().elements()),
        Predicate::ElemMatchObject(filter) => document(writer, "$elemMatch", filter.written_document()),
        Predicate::ElemMatchValue(list) => {
            writer.open_document("$elemMatch");
            list.iter().for_each(|one| write_operators(writer, one));
            writer.close();
        }
        Predicate::Not(inner) if inner.is_empty_conjunction() => {
            writer.append("$alwaysFalse", RawValue::Int32(1));
        }
        Predicate::Not(inner) => {
            writer.open_document("$not");
            match &**inner {
                Predicate::All(list) => list.iter().for_each(|one| write_operators(writer, one)),
                inner => write_operators(writer, inner),
            }
            writer.close();
        }
        Predicate::All(list) => {
            array(writer, "$and", list.iter().map(|one| Value::Document(operators(one))).collect());
        }
    }
}

fn in_values(list: &InList) -> Array {
    let regexes = list
        .regexes()
        .iter()
        .map(|regex| Value::Regex { pattern: regex.pattern().into(), options: regex.options().into() });
    list.values().iter().cloned().chain(regexes).collect()
}
