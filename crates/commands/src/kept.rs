//! What commands set for the whole server and a restart must find again: documents of `config`, where MongoDB keeps them too,
//! written through the same door as every document.

use std::sync::Arc;

use kilim_bson::{Document, RawValue, doc};
use kilim_engine::operation::Operation;
use kilim_engine::operator::ExecContext;
use kilim_engine::plan::ReadRequest;
use kilim_engine::unit::Unit;
use kilim_engine::write::{self, UpdateRequest};
use kilim_engine::{Durability, Engine, Namespace, read};
use kilim_error::{Error, Result};
use kilim_query::filter::Filter;
use kilim_query::update::Update;

use crate::command::update::now_ms;
use crate::dispatch::Call;

/// One such document: its collection in `config`, and its `_id`.
pub struct Kept {
    collection: &'static str,
    id: &'static str,
}

/// The concerns of commands that name none.
pub const DEFAULT_CONCERNS: Kept = Kept { collection: "settings", id: "ReadWriteConcernDefaults" };

/// Whether users may write.
pub const WRITE_BLOCK: Kept = Kept { collection: "user_writes_critical_sections", id: "" };

impl Kept {
    fn namespace(&self) -> Namespace {
        Namespace { database: "config".to_owned(), collection: self.collection.to_owned() }
    }

    pub fn read(&self, engine: &Engine, operation: &Arc<Operation>) -> Result<Option<Document>> {
        let namespace = self.namespace();
        if engine.collection(&namespace).is_none() {
            return Ok(None);
        }
        let filter = doc! {"_id": self.id};
        let mut unit = Unit::new(engine, operation.clone(), Durability::Relaxed);
        let request = ReadRequest::new(Arc::new(Filter::parse(filter.as_raw())?));
        let mut executor = read::plan(&mut unit, &namespace, request)?.execute();
        let interrupt = || operation.check();
        let mut context = ExecContext::new(&interrupt);
        Ok(executor.next_document(&mut context)?.map(|row| row.document().to_document()))
    }

    /// Puts a document without its `_id` in the place of the one that was kept. It is committed when this returns.
    pub fn write(&self, call: &mut Call<'_, '_>, document: &Document) -> Result<()> {
        let filter = doc! {"_id": self.id};
        let update = Update::parse(RawValue::Document(document.as_raw()), None, false)?;
        let request = UpdateRequest {
            filter: Arc::new(Filter::parse(filter.as_raw())?),
            update: &update,
            multi: false,
            upsert: true,
            hint: None,
            collation: None,
            now_ms: now_ms(),
            statement: 0,
            projection: None,
        };
        write::update(&mut call.unit, &self.namespace(), &request)?;
        call.unit.settle()
    }
}

/// Takes up what an earlier run kept, before the first command of this one.
pub fn recall(engine: &Engine, operation: &Arc<Operation>) -> Result<()> {
    if engine.settings.is_recalled() {
        return Ok(());
    }
    if let Some(concerns) = DEFAULT_CONCERNS.read(engine, operation)? {
        let write = concerns.get("defaultWriteConcern").and_then(RawValue::as_document);
        engine.settings.set_default_write_concern(write.map(|concern| concern.to_document()));
    }
    if let Some(block) = WRITE_BLOCK.read(engine, operation)? {
        let blocked = match block.get("blockUserWrites") {
            Some(RawValue::Bool(blocked)) => blocked,
            _ => return Err(Error::bug("a kept write block says nothing")),
        };
        engine.settings.block_user_writes(blocked);
    }
    engine.settings.note_recalled();
    Ok(())
}
