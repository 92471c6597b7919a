//! The column of a field in a bucket, in any of MongoDB's forms.
//!
//! In a bucket of version 1 it is a document: each value under the number of its measurement. In versions 2 and 3 it is that
//! document compressed. Kilim reads all of them. It writes version 1, and version 2 where a bucket takes no further measurement.
//!
//! A [`Column`] is a document of values. Who only goes through the values asks for a [`Readable`], which need not be one.

use kilim_bson::{COLUMN_SUBTYPE, Document, RawDocument, RawValue, Scalars, decode_column};
use kilim_error::{Error, ErrorCode, Result};

/// The form in which buckets are written. On disk.
pub(super) const VERSION: i32 = 1;
/// The form in which they are compressed: measurements are in the order of their time. On disk.
pub(super) const COMPRESSED_VERSION: i32 = 2;
/// The form in which a later MongoDB compresses them: measurements are in any order.
const UNORDERED_VERSION: i32 = 3;
/// How large the columns of a bucket may be in all. A mongod fills a bucket up to 128,000 bytes, or with few measurements up
/// to the size of a document.
const BYTES_MAX: usize = 32 * 1024 * 1024;

/// How much more of a bucket may be unpacked.
pub(super) struct Room(usize);

impl Room {
    pub fn of_a_bucket() -> Room {
        Room(BYTES_MAX)
    }

    fn unpack(&mut self, column: &[u8]) -> Result<Document> {
        let unpacked = decode_column(column, self.0)
            .map_err(|bad| Error::user(ErrorCode::BadValue, format!("a bucket's column is {bad}")))?;
        self.0 = self.0.saturating_sub(unpacked.as_bytes().len());
        Ok(unpacked)
    }
}

pub(super) enum Column<'b> {
    Plain(RawDocument<'b>),
    Unpacked(Document),
}

impl<'b> Column<'b> {
    /// None where it has neither form.
    pub fn of(stored: RawValue<'b>, room: &mut Room) -> Result<Option<Column<'b>>> {
        match stored {
            RawValue::Document(values) => Ok(Some(Column::Plain(values))),
            RawValue::Binary { subtype: COLUMN_SUBTYPE, bytes } => {
                Ok(Some(Column::Unpacked(room.unpack(bytes)?)))
            }
            _ => Ok(None),
        }
    }

    pub fn values(&self) -> RawDocument<'_> {
        match self {
            Column::Plain(values) => *values,
            Column::Unpacked(values) => values.as_raw(),
        }
    }

    pub fn into_document(self) -> Document {
        match self {
            Column::Plain(values) => values.to_document(),
            Column::Unpacked(values) => values,
        }
    }
}

/// A column whose values are looked at from the first to the last.
pub(super) enum Readable<'b> {
    Values(Column<'b>),
    /// A compressed one that needs no unpacking.
    InPlace {
        column: &'b [u8],
        scalars: Scalars<'b>,
    },
}

impl<'b> Readable<'b> {
    /// None where it has no form of a column.
    pub fn of(stored: RawValue<'b>, room: &mut Room) -> Result<Option<Readable<'b>>> {
        if let RawValue::Binary { subtype: COLUMN_SUBTYPE, bytes: column } = stored
            && let Some(scalars) = Scalars::of(column)
        {
            return Ok(Some(Readable::InPlace { column, scalars }));
        }
        Ok(Column::of(stored, room)?.map(Readable::Values))
    }

    /// About how many bytes are gone through.
    pub fn bytes(&self) -> usize {
        match self {
            Readable::Values(column) => column.values().as_bytes().len(),
            Readable::InPlace { scalars, .. } => scalars.count() * size_of::<u64>(),
        }
    }

    /// An error where there is no room for it: a column that is read in place is known to be sound.
    pub fn into_document(self, room: &mut Room) -> Result<Document> {
        match self {
            Readable::Values(column) => Ok(column.into_document()),
            Readable::InPlace { column, .. } => room.unpack(column),
        }
    }
}

/// Shows the values that the measurements of a bucket have in a field, whatever form the bucket has.
pub fn values_of_field(
    bucket: RawDocument<'_>,
    field: &str,
    show: &mut dyn FnMut(&str, RawValue<'_>) -> Result<()>,
) -> Result<()> {
    let data = bucket.get("data").and_then(RawValue::as_document);
    let Some(stored) = data.and_then(|data| data.get(field)) else { return Ok(()) };
    let Some(column) = Column::of(stored, &mut Room::of_a_bucket())? else { return Ok(()) };
    column.values().iter().try_for_each(|(number, value)| show(number, value))
}

/// The columns of a bucket by their names. None where it is of an unknown version, or damaged.
pub(super) fn columns_of(bucket: RawDocument<'_>) -> Option<Vec<(&str, Column<'_>)>> {
    let version = bucket.get("control")?.as_document()?.get("version")?;
    let RawValue::Int32(version) = version else { return None };
    if ![VERSION, COMPRESSED_VERSION, UNORDERED_VERSION].contains(&version) {
        return None;
    }
    let mut room = Room::of_a_bucket();
    let column = |(name, stored)| {
        let column = Column::of(stored, &mut room).ok()??;
        let of_version = matches!(column, Column::Plain(_)) == (version == VERSION);
        of_version.then_some((name, column))
    };
    bucket.get("data")?.as_document()?.iter().map(column).collect()
}
