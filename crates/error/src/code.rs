//! Error codes: MongoDB's numbers and names, generated from `codes.toml`.

use std::borrow::Cow;
use std::fmt;

/// A MongoDB error code. Drivers branch on the number, people read the name.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ErrorCode(pub i32);

include!(concat!(env!("OUT_DIR"), "/codes.rs"));

impl ErrorCode {
    /// Whether it is one of Kilim's own, which MongoDB's table lacks: those of declared patterns.
    pub fn is_own(self) -> bool {
        self.0 > 90_000_000
    }

    /// The `codeName` of replies: MongoDB calls the codes it never named `Location<number>`.
    pub fn name(self) -> Cow<'static, str> {
        match NAMES.binary_search_by_key(&self.0, |&(code, _)| code) {
            Ok(at) => Cow::Borrowed(NAMES[at].1),
            Err(_) => Cow::Owned(format!("Location{}", self.0)),
        }
    }
}

impl fmt::Debug for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.0, self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::ErrorCode;

    #[test]
    fn a_named_code_shows_its_name_and_another_its_location() {
        assert_eq!(ErrorCode::DuplicateKey.0, 11000);
        assert_eq!(ErrorCode(11000).name(), "DuplicateKey");
        assert_eq!(ErrorCode(40323).name(), "Location40323");
    }
}
