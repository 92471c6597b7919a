//! The first levels of a declared tree, as `kilim pattern show` draws them.

use anyhow::Result;
use kilim_bson::{Document, RawDocument, RawValue, Value, doc};
use kilim_client::whole;

use crate::connect::{Session, explained};
use crate::output::say;
use crate::text::{flow, grouped};

/// Enough to recognise a tree, and little enough for a terminal.
const LEVELS: usize = 3;
const SIBLINGS: usize = 6;

/// Draws the roots of a tree and what is below them; nothing for a pattern of another kind.
pub(super) fn draw(session: &mut Session, collection: &str, pattern: &Document) -> Result<()> {
    let kind = pattern.get("kind").and_then(RawValue::as_str);
    let spec = pattern.get("spec").and_then(RawValue::as_document);
    let (Some("tree"), Some(spec)) = (kind, spec) else { return Ok(()) };
    let mut drawing = Drawing { session, collection, spec, lines: Vec::new() };
    let roots = match drawing.field("depth") {
        // Nodes whose parents are missing are roots too.
        Some(depth) => [(depth, Value::Int32(0))].into_iter().collect(),
        None => drawing.children_of(Value::Null),
    };
    drawing.level(roots, "", 1)?;
    if !drawing.lines.is_empty() {
        say!("\n{}", drawing.lines.join("\n"))?;
    }
    Ok(())
}

struct Drawing<'d> {
    session: &'d mut Session,
    collection: &'d str,
    spec: RawDocument<'d>,
    lines: Vec<String>,
}

impl<'d> Drawing<'d> {
    /// The field that the declaration names for something.
    fn field(&self, name: &str) -> Option<&'d str> {
        self.spec.get(name).and_then(RawValue::as_str)
    }

    fn children_of(&self, parent: Value) -> Document {
        let mut filter = Document::new();
        filter.push(self.field("parent").unwrap_or("parent"), doc! {"$eq": parent});
        filter
    }

    /// By what siblings are sorted.
    fn order(&self) -> &'d str {
        let labels = self.spec.get("nestedSets").and_then(RawValue::as_array);
        let left = labels.and_then(|labels| labels.iter().next()).and_then(RawValue::as_str);
        self.field("order").or(left).unwrap_or("_id")
    }

    fn level(&mut self, filter: Document, indent: &str, level: usize) -> Result<()> {
        let mut sort = Document::new();
        sort.push(self.order(), 1);
        let find = doc! {
            "find": self.collection, "filter": filter.clone(), "sort": sort, "limit": SIBLINGS as i32 + 1,
        };
        let mut nodes = self.session.all(find).map_err(explained)?;
        let mut rest = 0;
        if nodes.len() > SIBLINGS {
            let count = doc! {"count": self.collection, "query": filter};
            rest = whole(self.session.run(count).map_err(explained)?.get("n")).unwrap_or(0) - SIBLINGS as i64;
            nodes.truncate(SIBLINGS);
        }
        let last = nodes.len();
        for (at, node) in nodes.iter().enumerate() {
            let ends = at + 1 == last && rest <= 0;
            self.lines.push(format!("{indent}{} {}", if ends { "└─" } else { "├─" }, self.label(node)));
            let id = node.get("_id").map_or(Value::Null, RawValue::to_value);
            // Nobody is the child of a node whose id is null: such a parent is none.
            if level < LEVELS && !matches!(id, Value::Null) {
                let below = self.children_of(id);
                self.level(below, &format!("{indent}{}  ", if ends { " " } else { "│" }), level + 1)?;
            }
        }
        if rest > 0 {
            self.lines.push(format!("{indent}└─ {} more", grouped(rest)));
        }
        Ok(())
    }

    /// A node's name, and how many are below it where that is kept.
    fn label(&self, node: &Document) -> String {
        let name = self.field("pathOf").and_then(|path| node.get(path));
        let name = match name.or_else(|| node.get("_id")) {
            Some(RawValue::String(text)) => text.to_owned(),
            other => flow(other.unwrap_or(RawValue::Null)),
        };
        let below = self.field("descendantCount").and_then(|field| whole(node.get(field)));
        match below.filter(|below| *below > 0) {
            Some(below) => format!("{name} ({} below)", grouped(below)),
            None => name,
        }
    }
}
