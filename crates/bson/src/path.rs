//! Dotted paths: `"items.0.price"`.

use std::fmt;

/// A parsed path. Components borrow nothing, so a path outlives the command it came in.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Path {
    text: Box<str>,
    components: Box<[Component]>,
}

/// One step of a path: a field name that may also be an array index.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Component {
    pub name: Box<str>,
    /// Set where the name is digits without a leading zero, so it may address an array element.
    pub index: Option<usize>,
}

impl Path {
    pub fn parse(text: &str) -> Path {
        let component = |name: &str| Component { name: name.into(), index: parse_index(name) };
        // As many as there are, so that nothing is moved again.
        let mut components = Vec::with_capacity(1 + memchr::memchr_iter(b'.', text.as_bytes()).count());
        components.extend(text.split('.').map(component));
        Path { text: text.into(), components: components.into() }
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub fn components(&self) -> &[Component] {
        &self.components
    }

    /// `a.b` contains `a.b` and `a.b.c`.
    pub fn contains(&self, other: &Path) -> bool {
        other.components.len() >= self.components.len()
            && self.components.iter().zip(&other.components).all(|(ours, theirs)| ours.name == theirs.name)
    }
}

/// The number that an array index name stands for: `"0"` and `"12"`, but not `"01"` nor `"-1"`.
pub fn parse_index(name: &str) -> Option<usize> {
    if name.is_empty() || name.len() > 10 || (name.len() > 1 && name.starts_with('0')) {
        return None;
    }
    let index = name
        .bytes()
        .try_fold(0u64, |index, byte| byte.is_ascii_digit().then(|| index * 10 + u64::from(byte - b'0')));
    usize::try_from(index?).ok()
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.text)
    }
}
