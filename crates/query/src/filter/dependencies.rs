//! Which parts of a document a filter reads.

use super::Filter;
use crate::expression::Dependencies;

impl Filter {
    pub fn dependencies(&self, needed: &mut Dependencies) {
        match self {
            Filter::True | Filter::False => {}
            Filter::And(children) | Filter::Or(children) | Filter::Nor(children) => {
                children.iter().for_each(|child| child.dependencies(needed));
            }
            Filter::Field { path, .. } => {
                // An index into an array needs the array.
                let components = path.components();
                let names = components.iter().take_while(|component| component.index.is_none());
                let names: Vec<&str> = names.map(|component| &*component.name).collect();
                match names.is_empty() {
                    true => needed.field(&components[0].name),
                    false => needed.field(&names.join(".")),
                }
            }
            Filter::Text(_) | Filter::JsonSchema(_) => needed.whole_document = true,
            Filter::Expr(expression) => expression.dependencies(needed),
        }
    }
}
