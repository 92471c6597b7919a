//! Capped collections made of others: `convertToCapped` and `cloneCollectionAsCapped`.

use std::sync::Arc;

use kilim_bson::Document;
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::filter::Filter;
use kilim_storage::Durability;

use crate::catalog::{Collection, forget, save};
use crate::change::Cause;
use crate::engine::Engine;
use crate::namespace::Namespace;
use crate::operation::Operation;
use crate::operator::ExecContext;
use crate::patterns::owned_pages;
use crate::plan::ReadRequest;
use crate::read;
use crate::records::Shape;
use crate::unit::Unit;
use crate::write::insert;

/// `convertToCapped`: a capped collection with the newest documents of another takes its place, with no index but
/// `_id`'s.
pub fn convert(unit: &mut Unit<'_>, namespace: &Namespace, options: Document) -> Result<()> {
    let engine = unit.engine;
    let operation = unit.operation.clone();
    let temporary = Namespace {
        database: namespace.database.clone(),
        collection: format!(
            "tmp{}.convertToCapped.{}",
            name_part(engine.environment().random()),
            // The whole must not be too long for a name.
            &namespace.collection[..namespace.collection.floor_char_boundary(128)]
        ),
    };
    // No writer comes in before the other is in its place.
    let (source, _held) = engine.hold(&operation, namespace)?;
    if engine
        .patterns()
        .iter()
        .any(|pattern| pattern.target == *namespace || pattern.source.as_ref() == Some(namespace))
    {
        return Err(Error::user(
            ErrorCode::IllegalOperation,
            format!("{namespace} cannot be converted while patterns are declared on it: drop them first"),
        ));
    }
    if let Shape::Pages = source.shape {
        return Err(owned_pages(namespace));
    }
    engine.create_temporary(&temporary, options)?;
    let copied =
        copy(unit, namespace, &temporary).and_then(|()| engine.put_in_place(&operation, &temporary, &source));
    if copied.is_err() {
        let _ = unit.settle();
        let _ = engine.drop_collection(&operation, &temporary);
    }
    copied
}

/// Five letters and digits, as MongoDB puts them into the name of a collection in the making.
fn name_part(random: u64) -> String {
    const FROM: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let digits = std::iter::successors(Some(random), |left| Some(left / FROM.len() as u64));
    digits.take(5).map(|left| char::from(FROM[(left % FROM.len() as u64) as usize])).collect()
}

/// `cloneCollectionAsCapped`: the same beside the other.
pub fn clone_as_capped(
    unit: &mut Unit<'_>,
    from: &Namespace,
    to: &Namespace,
    options: Document,
) -> Result<()> {
    unit.engine.create_collection(to, options)?;
    copy(unit, from, to)
}

impl Engine {
    /// Gives a collection the name and place of another, which the caller holds.
    fn put_in_place(&self, operation: &Operation, new: &Namespace, old: &Collection) -> Result<()> {
        let (new, _held) = self.hold(operation, new)?;
        let _ids = self.ids.lock();
        let renamed = Collection { namespace: old.namespace.clone(), temporary: false, ..(*new).clone() };
        let mut transaction = self.store.begin();
        forget(&mut transaction, old);
        save(&mut transaction, &renamed);
        self.log_renamed(&mut transaction, &new.namespace, &renamed, Some(old.uuid));
        transaction.commit(Durability::Durable)?;
        self.publish(|catalog| {
            catalog.remove(&new.namespace);
            catalog.insert(Arc::new(renamed));
        });
        self.cursors.close_of_collection(old.id);
        old.end_builds();
        Ok(())
    }
}

fn copy(unit: &mut Unit<'_>, from: &Namespace, to: &Namespace) -> Result<()> {
    let operation: Arc<Operation> = unit.operation.clone();
    let request = ReadRequest::new(Arc::new(Filter::True));
    let mut executor = read::plan(unit, from, request)?.execute();
    unit.bypass_validation = true;
    unit.cause = Cause::Copy;
    let interrupt = || operation.check();
    let mut context = ExecContext::new(&interrupt);
    while let Some(row) = executor.next_document(&mut context)? {
        let outcome = insert(unit, to, &[row.document()], true, |_| 0)?;
        if let Some((_, error)) = outcome.errors.into_iter().next() {
            return Err(error);
        }
    }
    unit.settle()
}
