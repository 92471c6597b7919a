//! The keys of documents whose array continues in pages: those of all parts together.
//!
//! An index that has anything of such an array has nothing else (`patterns/facts` refuses others), so the keys of a part follow
//! from its elements alone.

use kilim_bson::Document;
use kilim_error::Result;
use kilim_storage::Snapshot;

use super::{IndexSpec, KeySet, Multikey, keys_of};
use crate::records::{self, Home, Image, RowId};

/// Replaces what `out` holds by the keys of a row, all of its array considered.
pub(crate) fn keys_of_row(
    spec: &IndexSpec,
    home: &Home,
    snapshot: &Snapshot,
    row: RowId,
    image: &Image,
    out: &mut KeySet,
) -> Result<Multikey> {
    if let Some(paged) = home.shape.paged()
        && spec.is_over(&paged.paging.field)
        && let Some(parts) = records::parts(snapshot, paged, row, image.document())?
    {
        return keys_of_parts(spec, &parts, out);
    }
    keys_of(spec, image.document(), out)
}

/// Replaces what `out` holds by the keys of all these documents.
pub(crate) fn keys_of_parts(spec: &IndexSpec, parts: &[Document], out: &mut KeySet) -> Result<Multikey> {
    if let [only] = parts {
        return keys_of(spec, only.as_raw(), out);
    }
    out.clear();
    let (mut multikey, mut keys) = (Multikey::default(), KeySet::default());
    for part in parts {
        let seen = keys_of(spec, part.as_raw(), &mut keys)?;
        if !multikey.covers(&seen) {
            multikey = multikey.union(&seen);
        }
        out.append(&keys);
    }
    out.sort()?;
    Ok(multikey)
}

impl KeySet {
    /// Takes the keys out that one of these parts of an array has too. There may be many: each key of theirs is looked up once.
    pub(crate) fn remove_keys_of(&mut self, spec: &IndexSpec, parts: &[Document]) -> Result<()> {
        let mut marked = vec![false; self.len()];
        let mut keys = KeySet::default();
        for part in parts {
            keys_of(spec, part.as_raw(), &mut keys)?;
            for (key, _) in keys.iter() {
                if let Some(at) = self.position(key) {
                    marked[at] = true;
                }
            }
        }
        self.remove_marked(&marked);
        Ok(())
    }
}

impl IndexSpec {
    /// Whether its keys have anything of a field of the document itself.
    pub(crate) fn is_over(&self, field: &str) -> bool {
        self.depends_on(|path| *path.components()[0].name == *field)
    }
}
