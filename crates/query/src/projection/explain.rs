//! A projection as explain prints it, in mongod's order of fields.

use kilim_bson::{Document, RawValue, Writer};

use super::{Branch, Kind, Node, Projection};

impl Projection {
    /// What stands behind the name of the stage.
    pub fn to_document(&self) -> Document {
        let mut writer = Writer::new();
        self.write_branch(&self.root, &mut writer);
        let id = self.root.child("_id");
        match self.kind {
            Kind::Inclusion if id.is_none() => writer.append("_id", RawValue::Bool(false)),
            Kind::Exclusion if id.is_none() => writer.append("_id", RawValue::Bool(true)),
            _ => {}
        }
        writer.finish()
    }

    fn write_branch(&self, branch: &Branch, writer: &mut Writer) {
        let shown = RawValue::Bool(self.kind == Kind::Inclusion);
        let mut leaves: Vec<&str> = branch
            .children
            .iter()
            .filter(|(_, node)| matches!(node, Node::Leaf))
            .map(|(name, _)| &**name)
            .collect();
        if self.kind == Kind::Inclusion {
            leaves.sort_unstable();
        }
        // `_id` comes first wherever it is.
        leaves.sort_by_key(|name| *name != "_id");
        for name in leaves {
            writer.append(name, shown);
        }
        for (name, node) in &branch.children {
            match node {
                Node::Computed(expression) => writer.append(name, expression.to_value().as_raw()),
                Node::Branch(nested) => {
                    writer.open_document(name);
                    self.write_branch(nested, writer);
                    writer.close();
                }
                // Of find alone, which explain does not print by this.
                Node::Leaf | Node::Positional | Node::Slice(_) | Node::ElemMatch(_) => {}
            }
        }
    }
}
