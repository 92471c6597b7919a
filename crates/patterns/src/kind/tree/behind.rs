//! Nodes below one that moved, while a job has yet to write them.
//!
//! What is due to them is kept under the `_id` of the node that moved: its own ancestors and its path. A node has stored the
//! ancestors that it had. From the lowest of them that has something due on, they are true; what is above that one is what is
//! due. So one look at what is stored and at what is due tells what a node gets from above. Where labels are kept, what is due has
//! the distance by which they moved ([`Shift`]); then there is one such move at a time.
//!
//! Invariant: what is due to a node is what follows from its parents by now. Each step that changes that renews it, because
//! whoever takes steps asks [`Tree::due_below`] again.

use kilim_bson::{Array, Document, RawDocument, RawValue, Value, compare, doc};
use kilim_error::Result;

use super::node::with_values;
use super::shift::Shift;
use super::{Field, Nodes, Tree};
use crate::effect::{Copied, Due, DueByKey, Sight, key_bytes};

impl Tree {
    /// Whether nodes can be left to a job. They are found by their ancestors. Labels without gaps cannot be late, because each
    /// change gives others to half of the tree.
    pub fn leaves_to_jobs(&self) -> bool {
        self.ancestors.is_some() && !self.dense
    }

    /// What is due to the nodes below one; none if it is not there. `shift`: what is due to their labels.
    pub fn due_below(
        &self,
        nodes: &mut dyn Nodes,
        id: RawValue<'_>,
        shift: Option<&Shift>,
    ) -> Result<Option<Due>> {
        let Some(node) = nodes.node(id)?.map(|document| self.node_of(document)) else { return Ok(None) };
        let above = self.above_of(&self.climb(nodes, &node)?);
        let below = self.above_children(&above, &node);
        let ancestors: Array = above.ids.into_iter().collect();
        let mut due = doc! {"ancestors": ancestors, "path": below.path};
        shift.iter().for_each(|shift| shift.add_to(&mut due));
        Ok(Some(Due::Copy(Copied::To(due))))
    }

    /// A node with what follows from its parents; none where it has that.
    pub fn caught_up(&self, nodes: &mut dyn Nodes, document: RawDocument<'_>) -> Result<Option<Document>> {
        let node = self.node_of(document.to_document());
        let line = self.climb(nodes, &node)?;
        let mut fields = Vec::new();
        self.fields_from_above(&self.above_of(&line), document, &mut fields);
        Ok(with_values(document, fields))
    }

    pub(super) fn refers_to(&self, document: RawDocument<'_>, key: RawValue<'_>) -> bool {
        let stored = self.ancestors.as_ref().and_then(|field| field.get(document)?.as_array());
        stored.is_some_and(|stored| stored.iter().any(|id| compare(id, key).is_eq()))
    }

    /// A node as it is with what is due below one of its ancestors.
    pub(super) fn with_due(&self, document: RawDocument<'_>, key: RawValue<'_>, due: &Due) -> Sight {
        let stored = self.ancestors.as_ref().and_then(|field| field.get(document)?.as_array());
        let place = stored.and_then(|stored| stored.iter().position(|id| compare(id, key).is_eq()));
        let Some(place) = place else { return Sight::AsStored };
        self.seen(document, Shift::of(due).as_slice(), self.fields_below(document, place, due))
    }

    /// A node as it is with what is due below the lowest of its ancestors that has something due.
    pub(super) fn with_lowest_due(&self, document: RawDocument<'_>, due: &DueByKey) -> Sight {
        let Some(stored) = self.ancestors.as_ref().and_then(|field| field.get(document)?.as_array()) else {
            return Sight::AsStored;
        };
        let found = stored.iter().enumerate().filter_map(|(at, id)| Some((at, due.get(&key_bytes(id))?)));
        let Some((place, lowest)) = found.clone().last() else { return Sight::AsStored };
        let shifts: Vec<Shift> = found.filter_map(|(_, due)| Shift::of(due)).collect();
        self.seen(document, &shifts, self.fields_below(document, place, lowest))
    }

    fn seen(
        &self,
        document: RawDocument<'_>,
        shifts: &[Shift],
        fields: Option<Vec<(&Field, Value)>>,
    ) -> Sight {
        let shifted = self.shifted(document, shifts);
        let labelled = shifted.as_ref().map_or(document, Document::as_raw);
        Sight::of(fields.and_then(|fields| with_values(labelled, fields)).or(shifted))
    }

    /// What a node gets from above. `place`: where the node that moved stands among the ancestors that are stored.
    fn fields_below(
        &self,
        document: RawDocument<'_>,
        place: usize,
        due: &Due,
    ) -> Option<Vec<(&Field, Value)>> {
        let Due::Copy(Copied::To(due)) = due else { return None };
        let field = self.ancestors.as_ref()?;
        let above = due.get("ancestors")?.as_array()?;
        let stored = field.get(document)?.as_array()?;
        let ids = above.iter().chain(stored.iter().skip(place)).map(RawValue::to_value);
        let ids: Array = ids.collect();
        let mut fields = Vec::new();
        if let Some(field) = &self.depth {
            fields.push((field, Value::Int32(ids.as_raw().iter().count() as i32)));
        }
        fields.push((field, Value::Array(ids)));
        if let Some(field) = &self.path
            && let Some(rest) = field.get(document)?.as_str().and_then(|path| self.path_behind(path, place))
        {
            fields.push((field, Value::String(format!("{}{rest}", due.get("path")?.as_str()?))));
        }
        Some(fields)
    }

    /// What stands in a path behind the name at a place. The separator is in no name.
    fn path_behind<'p>(&self, path: &'p str, place: usize) -> Option<&'p str> {
        let names = path.strip_prefix(&*self.separator)?;
        (0..=place).try_fold(names, |rest, _| rest.split_once(&*self.separator).map(|(_, rest)| rest))
    }
}
