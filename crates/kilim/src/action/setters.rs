//! What an action can be told beside what it is about.
//!
//! Every option stands here once: its method, what is said of it, and the name that commands have for it. An action
//! keeps its [`Options`] in a field of that name, and lists the options it has:
//!
//! ```text
//! impl<'a, T> Delete<'a, T> {
//!     setters!(collation comment hint let_vars session);
//! }
//! ```
//!
//! Where an option belongs to a statement and not to its command, [`Options::put_some`] tells them apart.

use std::time::Duration;

use bson::Bson;

use crate::Result;
use crate::command::Command;

/// Options that were set, by the names that commands have for them.
#[derive(Debug, Default)]
pub(crate) struct Options(bson::Document);

impl Options {
    /// The last word counts.
    pub fn set(&mut self, name: &str, value: impl Into<Bson>) {
        self.0.insert(name, value);
    }

    pub fn set_count(&mut self, name: &str, count: u64) {
        self.set(name, i64::try_from(count).unwrap_or(i64::MAX));
    }

    pub fn set_milliseconds(&mut self, name: &str, time: Duration) {
        self.set(name, i64::try_from(time.as_millis()).unwrap_or(i64::MAX));
    }

    pub fn set_list(&mut self, name: &str, list: impl IntoIterator<Item = bson::Document>) {
        self.set(name, list.into_iter().map(Bson::Document).collect::<Vec<Bson>>());
    }

    pub fn take(&mut self, name: &str) -> Option<Bson> {
        self.0.remove(name)
    }

    /// Puts all of them into a command.
    pub fn put(&self, command: &mut Command) -> Result<()> {
        if self.0.is_empty() {
            return Ok(());
        }
        command.set_all(&self.0)
    }

    /// Puts those with these names into a statement, and leaves the others.
    pub fn put_some(&mut self, names: &[&str], statement: &mut Command) -> Result<()> {
        let some = names.iter().filter_map(|name| Some(((*name).to_owned(), self.0.remove(name)?)));
        let some = Options(some.collect());
        some.put(statement)
    }
}

/// The methods of an action's options.
macro_rules! setters {
    ($($option:ident)*) => { $($crate::action::setters::setter!($option);)* };
}

macro_rules! setter {
    (allow_disk_use) => {
        /// Whether what needs more memory than it may have goes to disk.
        pub fn allow_disk_use(mut self, allow: bool) -> Self {
            self.options.set("allowDiskUse", allow);
            self
        }
    };
    (array_filters) => {
        /// Which elements `$[name]` means.
        pub fn array_filters(mut self, filters: impl IntoIterator<Item = bson::Document>) -> Self {
            self.options.set_list("arrayFilters", filters);
            self
        }
    };
    (bypass_document_validation) => {
        /// Whether the collection's validator is not asked.
        pub fn bypass_document_validation(mut self, bypass: bool) -> Self {
            self.options.set("bypassDocumentValidation", bypass);
            self
        }
    };
    (collation) => {
        /// How texts compare: a [`Collation`](crate::options::Collation), or a document as MongoDB has it. Where
        /// nothing is said, the collection's own is taken.
        pub fn collation(mut self, collation: impl Into<crate::options::Collation>) -> Self {
            self.options.set("collation", collation.into());
            self
        }
    };
    (comment) => {
        /// What logs, the profiler and `currentOp` show beside it.
        pub fn comment(mut self, comment: impl Into<bson::Bson>) -> Self {
            self.options.set("comment", comment);
            self
        }
    };
    (hint) => {
        /// The index to use, by its key or its name: a [`Hint`](crate::options::Hint), a document or a text.
        pub fn hint(mut self, index: impl Into<crate::options::Hint>) -> Self {
            self.options.set("hint", index.into());
            self
        }
    };
    (let_vars) => {
        /// Variables for expressions, which call them `$$name`.
        pub fn let_vars(mut self, variables: bson::Document) -> Self {
            self.options.set("let", variables);
            self
        }
    };
    (limit) => {
        /// At most so many documents; 0 for all.
        pub fn limit(mut self, documents: u64) -> Self {
            self.options.set_count("limit", documents);
            self
        }
    };
    (max_time) => {
        /// How long it may take, to the millisecond; 0 for as long as it takes.
        pub fn max_time(mut self, time: std::time::Duration) -> Self {
            self.options.set_milliseconds("maxTimeMS", time);
            self
        }
    };
    (session) => {
        /// In a session, and in its transaction if there is one.
        pub fn session(mut self, session: &'a mut crate::Session) -> Self {
            self.session = Some(session);
            self
        }
    };
    (skip) => {
        /// Not the first so many documents.
        pub fn skip(mut self, documents: u64) -> Self {
            self.options.set_count("skip", documents);
            self
        }
    };
    (sort) => {
        /// In which order: what is the first.
        pub fn sort(mut self, sort: bson::Document) -> Self {
            self.options.set("sort", sort);
            self
        }
    };
    (upsert) => {
        /// Inserts what the filter and the update say if nothing matches.
        pub fn upsert(mut self, upsert: bool) -> Self {
            self.options.set("upsert", upsert);
            self
        }
    };
}

pub(crate) use {setter, setters};
