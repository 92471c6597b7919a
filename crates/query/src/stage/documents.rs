//! `$documents`: documents that stand in the pipeline itself.

use std::sync::Arc;

use kilim_bson::{Document, RawValue, Value};
use kilim_error::{Error, Result};

use super::{Behaviour, Context, Stage};
use crate::text;

#[derive(Debug, Clone)]
pub struct Documents {
    pub documents: Arc<[Document]>,
}

pub(super) fn parse(_: &str, value: RawValue<'_>, _: &Context<'_>, out: &mut Vec<Stage>) -> Result<()> {
    let RawValue::Array(array) = value else {
        return Err(Error::location(5858203, "an array is expected"));
    };
    let documents = array.iter().map(|element| match element {
        RawValue::Document(document) => Ok(document.to_document()),
        other => Err(Error::location(
            40228,
            format!(
                "elements within the array passed to $documents must evaluate to an object, but resulting value \
                 was: {}. Type of resulting value: '{}'.",
                text::value(other),
                other.element_type().name()
            ),
        )),
    });
    out.push(Stage::Documents(Documents { documents: documents.collect::<Result<_>>()? }));
    Ok(())
}

impl Behaviour for Documents {
    fn to_document(&self) -> Document {
        let documents: Vec<Document> = self.documents.to_vec();
        [("$documents", Value::from(documents))].into_iter().collect()
    }
}
