//! Collations that a thread has met lately, by the bytes of their documents.
//!
//! A client sends the same few documents with all its commands, and finding a locale's data costs more than the lookup
//! that they are for.

use std::cell::RefCell;

use crate::Collation;

/// An application has one or two.
const KEPT: usize = 8;

thread_local! {
    /// The latest last.
    static RECENT: RefCell<Vec<(Box<[u8]>, Collation)>> = const { RefCell::new(Vec::new()) };
}

pub(crate) fn find(document: &[u8]) -> Option<Collation> {
    RECENT.with_borrow(|recent| {
        let found = recent.iter().rev().find(|(known, _)| **known == *document);
        found.map(|(_, collation)| collation.clone())
    })
}

pub(crate) fn keep(document: &[u8], collation: &Collation) {
    RECENT.with_borrow_mut(|recent| {
        if recent.len() == KEPT {
            recent.remove(0);
        }
        recent.push((document.into(), collation.clone()));
    });
}
