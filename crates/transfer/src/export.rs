//! `export`: a collection as text.

use std::io::Write;

use anyhow::{Result, bail};
use kilim_bson::{Document, JsonFormat, doc, to_extended_json};
use kilim_client::{Client, whole};

use crate::Watch;
use crate::columns::{Column, cell};
use crate::metadata::PATTERNS;
use crate::pages::{self, Outlier};

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
        let projection = self.projection(self.shortened(client)?.as_deref())?;
        if !projection.is_empty() {
            find.push("projection", projection.as_raw());
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

    /// The array that finds show only a part of, because it continues in pages.
    fn shortened(&self, client: &mut Client) -> Result<Option<String>> {
        if self.collection == PATTERNS {
            return Ok(None);
        }
        let declared = pages::declarations(client, &self.database, &self.collection)?;
        let outliers = declared.iter().filter_map(|declared| Outlier::of(&self.database, declared));
        Ok(outliers.filter_map(|outlier| outlier.shortened().map(str::to_owned)).next())
    }

    /// What is asked of the server. An array that continues in pages comes whole where a slice asks for it.
    fn projection(&self, shortened: Option<&str>) -> Result<Document> {
        let mut projection = Document::new();
        let is_shortened = |column: &Column| shortened.is_some_and(|field| column.path[0] == field);
        if let Some(field) = shortened
            && (self.fields.is_empty() || self.fields.iter().any(is_shortened))
        {
            // Cells are taken out of the document, whatever else it has.
            if self.fields.is_empty() || matches!(self.format, ExportFormat::Table { .. }) {
                projection.push(field, doc! {"$slice": [0, i32::MAX]});
                return Ok(projection);
            }
            if self.fields.iter().any(|column| is_shortened(column) && column.path.len() > 1) {
                bail!(
                    "'{field}' of {}.{} continues in pages: --fields takes it as a whole, or write a table",
                    self.database,
                    self.collection
                );
            }
        }
        let columns = self.fields.iter().map(|column| (column.name(), is_shortened(column)));
        for (name, is_shortened) in columns {
            match is_shortened {
                true => projection.push(&name, doc! {"$slice": [0, i32::MAX]}),
                false => projection.push(&name, 1),
            }
        }
        if self.fields.iter().all(is_shortened) && !self.fields.is_empty() {
            // Beside a slice alone, all other fields would come too.
            projection.push("_id", 1);
        }
        // A table shows what it was asked for; lines keep what tells documents apart.
        let wants_id = self.fields.iter().any(|column| column.path[0] == "_id");
        if !wants_id && matches!(self.format, ExportFormat::Table { .. }) {
            projection.push("_id", 0);
        }
        Ok(projection)
    }
}

fn write_row(out: &mut dyn Write, separator: u8, cells: impl Iterator<Item = String>) -> Result<()> {
    let mut writer = csv::WriterBuilder::new().delimiter(separator).from_writer(Vec::new());
    writer.write_record(cells)?;
    out.write_all(&writer.into_inner().map_err(|error| anyhow::anyhow!("{error}"))?)?;
    Ok(())
}
