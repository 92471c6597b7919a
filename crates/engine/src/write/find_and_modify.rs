//! `findAndModify`: changes or removes the first match and gives back the document, before or after.

use std::borrow::Cow;
use std::sync::Arc;

use kilim_bson::{Document, Value, doc};
use kilim_error::{Error, Result};
use kilim_query::sort::Sort;

use super::done::{Kind, answered, of_kind};
use super::door;
use super::paged;
use super::update::{
    Candidates, Images, UpdateRequest, UpsertRace, apply_update, change_record, check_maintained, insert_new,
    matching, new_document,
};
use crate::change::Change;
use crate::namespace::Namespace;
use crate::operator::Measured;
use crate::plan::Keys;
use crate::unit::Unit;

pub struct FindAndModifyRequest<'a> {
    /// A removal uses its filter, hint and statement too.
    pub target: UpdateRequest<'a>,
    pub modification: Modification,
    pub sort: Option<Sort>,
    /// Whether the answer has the index key by which the document was found.
    pub tells_key: bool,
    /// Whether the score of a `$text` is asked for.
    pub tells_score: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Modification {
    Remove,
    /// `new`: give back the document as it became.
    Update {
        new: bool,
    },
}

#[derive(Debug, Default, Clone)]
pub struct Modified {
    /// The document to give back, before projection.
    pub value: Option<Document>,
    /// The index key by which the document was found, before it was changed, if that was asked for.
    pub key: Option<Document>,
    /// How well it matched a `$text`, or how far it was.
    pub score: Option<f64>,
    /// Which of its places was so far.
    pub near: Option<Arc<Measured>>,
    pub matched: bool,
    /// It is a removal. In a retry: the first try was one.
    pub removes: bool,
    pub upserted: Option<Value>,
}

pub fn find_and_modify(
    unit: &mut Unit<'_>,
    namespace: &Namespace,
    request: &FindAndModifyRequest<'_>,
) -> Result<Modified> {
    if let Some(done) = answered(unit, request.target.statement) {
        return done.as_find_and_modify(request.modification, request.target.upsert);
    }
    if let Modification::Update { .. } = request.modification {
        check_maintained(unit, namespace, request.target.update)?;
    }
    let mut race = UpsertRace::default();
    let mut modified = loop {
        if let Some(modified) = modify_first(unit, namespace, request)? {
            break modified;
        }
        if !request.target.upsert {
            break Modified::default();
        }
        match upsert(unit, namespace, request) {
            Ok(modified) => break modified,
            Err(error) => race.look_again(unit, &request.target.filter, error)?,
        }
    };
    modified.removes = request.modification == Modification::Remove;
    if modified.matched || modified.upserted.is_some() {
        unit.record_statement(request.target.statement, || Cow::Owned(modified.encode(request.modification)));
        unit.written()?;
    }
    Ok(modified)
}

fn modify_first(
    unit: &mut Unit<'_>,
    namespace: &Namespace,
    request: &FindAndModifyRequest<'_>,
) -> Result<Option<Modified>> {
    let target = &request.target;
    let mut read = matching(&target.filter, request.sort.as_ref(), target.hint.as_ref(), &target.collation);
    if request.tells_key {
        read.keys = Keys::Kept;
    }
    read.text_score |= request.tells_score;
    let Some(mut candidates) = Candidates::find(unit, namespace, read)? else { return Ok(None) };
    // A candidate that another writer has changed meanwhile may not match any more. Then the next one is the first.
    while let Some(found) = candidates.next(unit)? {
        let row = found.row;
        let (key, score, near) = (found.key.clone(), found.score, found.near.clone());
        let changed = change_record(
            unit,
            namespace,
            found,
            &candidates.filter,
            |unit, collection, before, position| match request.modification {
                Modification::Remove => {
                    let seen = paged::shown(unit, collection, row, before.seen, target.projection)?;
                    door::write(unit, Change::delete(collection, row, before, unit.cause), &|_| false)?;
                    Ok(Images { before: seen, after: None })
                }
                Modification::Update { .. } => apply_update(unit, collection, row, before, position, target),
            },
        )?;
        if let Some(images) = changed {
            let key = key.map(Arc::unwrap_or_clone);
            return Ok(Some(Modified { key, score, near, ..Modified::of(images, request.modification) }));
        }
    }
    Ok(None)
}

fn upsert(
    unit: &mut Unit<'_>,
    namespace: &Namespace,
    request: &FindAndModifyRequest<'_>,
) -> Result<Modified> {
    let document = new_document(unit, &request.target)?;
    let id =
        document.get("_id").ok_or_else(|| Error::bug("an upsert made a document without _id"))?.to_value();
    let shaped = insert_new(unit, namespace, document.as_raw(), request.target.projection)?;
    let new = request.modification == Modification::Update { new: true };
    let value = new.then(|| shaped.unwrap_or(document));
    Ok(Modified { value, upserted: Some(id), ..Modified::default() })
}

impl Modified {
    fn of(images: Images, modification: Modification) -> Modified {
        let value = match modification {
            Modification::Update { new: true } => images.after.unwrap_or(images.before),
            _ => images.before,
        };
        Modified { value: Some(value), matched: true, ..Modified::default() }
    }

    fn encode(&self, modification: Modification) -> Document {
        let mut document = doc! {"matched": self.matched};
        if let Some(value) = &self.value {
            document.push("value", value.clone());
        }
        if let Some(id) = &self.upserted {
            document.push("upserted", id.clone());
        }
        let kind = match modification {
            _ if self.upserted.is_some() => Kind::Insert,
            Modification::Remove => Kind::Delete,
            Modification::Update { .. } => Kind::Update,
        };
        of_kind(kind, document)
    }
}
