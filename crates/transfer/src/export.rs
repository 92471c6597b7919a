//! `export`: a collection as text.

use std::io::Write;

use anyhow::{Result, bail};
use kilim_bson::{Document, JsonFormat, doc, to_extended_json};
use kilim_client::{Client, whole};

use crate::Watch;
use crate::columns::{Column, cell};

const STEPS: u64 = 256;

#[derive(Debug, Clone)]
pub struct Export {
    pub database: String,
    pub collection: String,
    pub query: Document,
    pub sort: Option<Document>,
    pub skip: u64,
    pub limit: u64,
    /// These fields only; of a table, its columns.
    pub fields: Vec<Column>,
    pub format: ExportFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExportFormat {
    /// A document a line.
    Lines(JsonFormat),
    Array(JsonFormat),
    /// With a first line of names, unless told otherwise.
    Table {
        separator: u8,
        head: bool,
    },
}

impl Export {
    /// Writes the documents; how many.
    pub fn run(&self, client: &mut Client, out: &mut dyn Write, watch: &mut dyn Watch) -> Result<u64> {
        self.check_collection(client)?;
        let total = self.total(client)?;
        let mut find = doc! {"find": &*self.collection, "filter": self.query.clone()};
        if let Some(sort) = &self.sort {
            find.push("sort", sort.as_raw());
        }
        if !self.fields.is_empty() {
            find.push("projection", self.projection().as_raw());
        }
        if self.skip > 0 {
            find.push("skip", self.skip as i64);
        }
        if self.limit > 0 {
            find.push("limit", self.limit as i64);
        }
        let mut written = 0;
        self.begin(out)?;
        for document in client.documents(&self.database, find)? {
            let document = document?;
            match self.format {
                ExportFormat::Lines(format) => {
                    writeln!(out, "{}", to_extended_json(document.as_raw(), format))?;
                }
                ExportFormat::Array(format) => {
                    let between = if written == 0 { "" } else { ",\n" };
                    write!(out, "{between}{}", to_extended_json(document.as_raw(), format))?;
                }
                ExportFormat::Table { separator, .. } => {
                    let cells = self.fields.iter().map(|column| cell(document.as_raw(), &column.path));
                    write_row(out, separator, cells)?;
                }
            }
            written += 1;
            if written % STEPS == 0 {
                watch.moved(&self.collection, written, total);
            }
        }
        if let ExportFormat::Array(_) = self.format {
            writeln!(out, "]")?;
        }
        out.flush()?;
        Ok(written)
    }

    /// Nothing, exported from under a name that was mistyped, would look like an empty collection.
    fn check_collection(&self, client: &mut Client) -> Result<()> {
        // The server's own collections can be read and are not always listed.
        if self.collection.starts_with("system.") {
            return Ok(());
        }
        let list = doc! {"listCollections": 1, "nameOnly": true, "filter": {"name": &*self.collection}};
        match client.all(&self.database, list)?.is_empty() {
            true => bail!("there is no collection {}.{}", self.database, self.collection),
            false => Ok(()),
        }
    }

    fn begin(&self, out: &mut dyn Write) -> Result<()> {
        match self.format {
            ExportFormat::Array(_) => write!(out, "[")?,
            ExportFormat::Table { separator, head: true } => {
                write_row(out, separator, self.fields.iter().map(Column::name))?;
            }
            _ => {}
        }
        Ok(())
    }

    /// About how many will come: known where nothing is asked of them.
    fn total(&self, client: &mut Client) -> Result<u64> {
        if !self.query.is_empty() || self.limit > 0 || self.skip > 0 {
            return Ok(self.limit);
        }
        let reply = client.run(&self.database, doc! {"count": &*self.collection})?;
        Ok(whole(reply.get("n")).unwrap_or(0).max(0) as u64)
    }

    fn projection(&self) -> Document {
        let mut projection = Document::new();
        for column in &self.fields {
            projection.push(&column.name(), 1);
        }
        // A table shows what it was asked for; lines keep what tells documents apart.
        let wants_id = self.fields.iter().any(|column| column.path[0] == "_id");
        if !wants_id && matches!(self.format, ExportFormat::Table { .. }) {
            projection.push("_id", 0);
        }
        projection
    }
}

fn write_row(out: &mut dyn Write, separator: u8, cells: impl Iterator<Item = String>) -> Result<()> {
    let mut writer = csv::WriterBuilder::new().delimiter(separator).from_writer(Vec::new());
    writer.write_record(cells)?;
    out.write_all(&writer.into_inner().map_err(|error| anyhow::anyhow!("{error}"))?)?;
    Ok(())
}
