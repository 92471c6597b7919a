//! Projections: which parts of a document a reader gets.
