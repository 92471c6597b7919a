//! The `cursor` of a reply: its first or next batch.

use std::sync::Arc;

use kilim_bson::{Document, RawValue, Timestamp, Writer};
use kilim_engine::Namespace;
use kilim_engine::cursor::{Batch, Cursor, CursorSource};
use kilim_engine::operator::ExecContext;
use kilim_error::Result;

use crate::access;
use crate::dispatch::Call;

/// Fills the first batch; a cursor that has more stays open.
pub fn first_batch(
    call: &mut Call<'_, '_>,
    mut cursor: Cursor,
    batch: Batch,
    single: bool,
) -> Result<Document> {
    // A little less than the kilobyte up to which allocators are quick.
    let mut writer = Writer::with_capacity(960);
    writer.open_document("cursor");
    writer.open_array("firstBatch");
    let operation = call.operation.clone();
    let interrupt = || operation.check();
    let mut context = ExecContext::new(&interrupt);
    let exhausted = cursor.fill(&mut writer, batch, &mut context)?;
    call.unit.figures.add(context.figures);
    writer.close();
    call.engine.metrics.documents_returned.add(cursor.returned);
    append_token(&mut writer, &cursor);
    if let Some(time) = at_cluster_time(call) {
        writer.append("atClusterTime", RawValue::Timestamp(time));
    }
    if exhausted || single {
        return finish(writer, 0, &cursor.namespace);
    }
    let namespace = cursor.namespace.clone();
    let id = call.engine.cursors.open(owned_by(call, cursor))?;
    finish(writer, id, &namespace)
}

/// The moment that a snapshot read was made at, which the session's next read will name.
pub fn at_cluster_time(call: &Call<'_, '_>) -> Option<Timestamp> {
    Some(Timestamp::from_bits(call.unit.read_at.as_ref()?.commit_time()))
}

/// Where a client of a change stream resumes that has seen the batch, behind the batch's array.
pub fn append_token(writer: &mut Writer, cursor: &Cursor) {
    if let CursorSource::Stream(stream) = &cursor.source {
        writer.append("postBatchResumeToken", RawValue::Document(stream.token().as_raw()));
        if stream.is_exhausted() {
            writer.append("invalidated", RawValue::Bool(true));
        }
    }
}

/// Closes the `cursor` document that an open batch array lies in.
pub fn finish(mut writer: Writer, id: i64, namespace: &Namespace) -> Result<Document> {
    writer.append("id", RawValue::Int64(id));
    writer.append("ns", RawValue::String(&namespace.full_name()));
    writer.close();
    Ok(writer.finish())
}

fn owned_by(call: &Call<'_, '_>, mut cursor: Cursor) -> Cursor {
    cursor.session = call.generic.session;
    cursor.connection = call.client.id;
    cursor.originating = call.operation.command().cloned().map(Arc::new);
    cursor.user = call.operation.user().cloned();
    cursor.api = call.generic.api;
    cursor.claims = access::claims_of(call);
    if call.unit.is_transaction() {
        cursor.transaction = call.generic.transaction_number;
    }
    cursor
}
