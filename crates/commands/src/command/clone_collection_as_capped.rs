//! `cloneCollectionAsCapped`: copy the newest documents of a collection into a new one of bounded size.

use kilim_bson::{Document, RawValue};
use kilim_engine::{Namespace, ddl};
use kilim_error::{Error, ErrorCode, Result};

use super::convert_to_capped::{capped_options, source_missing};
use crate::dispatch::Call;

const NAME: &str = "cloneCollectionAsCapped";

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let text = |name: &str| match call.body.get(name) {
        Some(RawValue::String(text)) => Ok(text),
        _ => Err(Error::user(ErrorCode::TypeMismatch, format!("'{name}' must be of type String"))),
    };
    let (from, to) = (text(NAME)?, text("toCollection")?);
    if to.is_empty() {
        return Err(Error::user(ErrorCode::InvalidNamespace, "Invalid target collection name: "));
    }
    let from = Namespace::parse(call.generic.database, from)?;
    let to = Namespace::parse(call.generic.database, to)?;
    if from.collection.contains('$') {
        return Err(Error::user(
            ErrorCode::InvalidNamespace,
            format!("Invalid source collection name: {}", from.collection),
        ));
    }
    call.describe("command");
    let capped = capped_options(call, NAME)?;
    call.engine.catalog().check_no_alias(&from)?;
    call.engine.check_no_view(&from)?;
    let Some(source) = call.engine.collection(&from) else {
        return Err(source_missing(&from.to_string()));
    };
    // What else was said of the source holds for the copy, but for an order that a capped collection cannot have.
    let options = source.options.iter().filter(|(name, _)| *name != "clusteredIndex");
    let options: Document = options.map(|(name, value)| (name, value.to_value())).collect();
    let options = capped.over(options.as_raw());
    if call.engine.collection(&to).is_some() {
        return Err(Error::user(
            ErrorCode::NamespaceExists,
            format!(
                "cloneCollectionAsCapped failed - destination collection {to} already exists. source collection: \
                 {from}"
            ),
        ));
    }
    ddl::clone_as_capped(&mut call.unit, &from, &to, options)?;
    Ok(Document::new())
}
