//! `$documents`: documents that an expression gives, instead of a collection.

use std::sync::Arc;

use kilim_bson::{Document, RawDocument, RawValue, Value, doc};
use kilim_error::{Error, Result};

use super::{Behaviour, Context, Stage};
use crate::expression::{Bindings, Env, Expression};
use crate::text;

#[derive(Debug, Clone)]
pub struct Documents {
    expression: Arc<Expression>,
}

/// The field that explain shows the documents in before they are unwound. On MongoDB it is named anew each
/// time, so that no document can have it.
const FIELD: &str = "documents";

pub(super) fn parse(_: &str, value: RawValue<'_>, context: &Context<'_>, out: &mut Vec<Stage>) -> Result<()> {
    let expression = Arc::new(Expression::parse(value, context.scope)?);
    out.push(Stage::Documents(Documents { expression }));
    Ok(())
}

impl Documents {
    /// As if the documents had been given.
    pub fn of(documents: Vec<Document>) -> Documents {
        Documents { expression: Arc::new(Expression::Constant(Value::from(documents))) }
    }

    pub fn evaluate(&self, bindings: &Bindings) -> Result<Vec<Document>> {
        let value = self.expression.evaluate(&Env::new(RawDocument::empty(), bindings))?;
        let Some(RawValue::Array(array)) = value.raw() else {
            return Err(Error::location(5858203, "an array is expected"));
        };
        let documents = array.iter().map(|element| match element {
            RawValue::Document(document) => Ok(document.to_document()),
            other => {
                let shown = text::value(other);
                Err(Error::location(
                    40228,
                    format!(
                        "elements within the array passed to $documents must evaluate to an object, but resulting \
                         value was: {shown}. Type of resulting value: '{}'. Input document: {{{FIELD}: {shown}}}",
                        other.element_type().name()
                    ),
                ))
            }
        });
        documents.collect()
    }
}

impl Behaviour for Documents {
    fn to_document(&self) -> Document {
        [("$documents", self.expression.to_value())].into_iter().collect()
    }

    fn to_documents(&self) -> Vec<Document> {
        let path = format!("${FIELD}");
        let mut project = doc! {"_id": true};
        project.push(FIELD, self.expression.to_value());
        vec![
            doc! {"$queue": [{}]},
            doc! {"$project": project},
            doc! {"$unwind": {"path": &path}},
            doc! {"$replaceRoot": {"newRoot": path}},
        ]
    }
}
