//! What a cursor holds, document by document; batches are fetched when they are needed.

use std::vec;

use kilim_bson::{Document, RawDocument, RawValue, doc};

use crate::{Client, Fault, whole};

/// An iterator over a cursor's documents. Dropped before its end, it tells the server.
pub struct Cursor<'c> {
    client: &'c mut Client,
    database: String,
    collection: String,
    /// 0 when the server holds no more.
    id: i64,
    batch: vec::IntoIter<Document>,
}

impl<'c> Cursor<'c> {
    pub(crate) fn open(
        client: &'c mut Client,
        database: &str,
        command: Document,
    ) -> Result<Cursor<'c>, Fault> {
        let reply = client.run(database, command)?;
        let (id, batch) = read_batch(&reply, "firstBatch")?;
        let namespace =
            reply.get("cursor").and_then(RawValue::as_document).and_then(|cursor| cursor.get("ns"));
        let collection = namespace
            .and_then(RawValue::as_str)
            .and_then(|namespace| namespace.split_once('.'))
            .map_or_else(String::new, |(_, collection)| collection.to_owned());
        Ok(Cursor { client, database: database.to_owned(), collection, id, batch })
    }

    fn fetch(&mut self) -> Result<(), Fault> {
        let command = doc! {"getMore": self.id, "collection": &*self.collection};
        // Whatever the answer: a cursor that failed is gone.
        self.id = 0;
        let reply = self.client.run(&self.database, command)?;
        (self.id, self.batch) = read_batch(&reply, "nextBatch")?;
        Ok(())
    }
}

impl Iterator for Cursor<'_> {
    type Item = Result<Document, Fault>;

    fn next(&mut self) -> Option<Result<Document, Fault>> {
        loop {
            if let Some(document) = self.batch.next() {
                return Some(Ok(document));
            }
            if self.id == 0 {
                return None;
            }
            if let Err(fault) = self.fetch() {
                return Some(Err(fault));
            }
        }
    }
}

impl Drop for Cursor<'_> {
    fn drop(&mut self) {
        if self.id != 0 {
            let command = doc! {"killCursors": &*self.collection, "cursors": [self.id]};
            // It would time out anyway.
            let _ = self.client.reply(&self.database, command.as_raw());
        }
    }
}

fn read_batch(reply: &Document, name: &str) -> Result<(i64, vec::IntoIter<Document>), Fault> {
    let cursor = reply.get("cursor").and_then(RawValue::as_document);
    let parts = cursor.and_then(|cursor| {
        let batch = cursor.get(name)?.as_array()?;
        Some((whole(cursor.get("id"))?, batch))
    });
    let (id, batch) = parts.ok_or_else(|| Fault::unexpected("the reply holds no cursor"))?;
    let documents: Vec<Document> =
        batch.iter().filter_map(RawValue::as_document).map(RawDocument::to_document).collect();
    Ok((id, documents.into_iter()))
}
