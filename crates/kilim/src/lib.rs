//! Kilim in your program: a document database with MongoDB's query language, in one directory, without a server.
//!
//! The interface has the shape of the MongoDB driver's synchronous one: collections of any type that serde knows,
//! filters and updates as documents, options as methods, [`run`](action::Find::run) at the end.
//!
//! ```
//! use kilim::{Database, bson::doc};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Debug, PartialEq, Serialize, Deserialize)]
//! struct Book {
//!     title: String,
//!     pages: i32,
//! }
//!
//! # fn main() -> kilim::Result<()> {
//! let database = Database::in_memory()?;
//! let books = database.collection::<Book>("books");
//!
//! books.insert_one(&Book { title: "Emma".into(), pages: 474 }).run()?;
//! books.insert_one(&Book { title: "Persuasion".into(), pages: 249 }).run()?;
//! books.update_one(doc! {"title": "Emma"}, doc! {"$inc": {"pages": 1}}).run()?;
//!
//! let long = books.find(doc! {"pages": {"$gt": 300}}).sort(doc! {"title": 1}).run()?;
//! let long: Vec<Book> = long.collect::<kilim::Result<_>>()?;
//! assert_eq!(long, [Book { title: "Emma".into(), pages: 475 }]);
//! # Ok(())
//! # }
//! ```
//!
//! A directory that [`Database::open`] made can be served by `kilim serve --data` afterwards, and the other way
//! round; one program at a time. Whatever the server can be asked, [`Database::run_command`] can: aggregation,
//! declared patterns, statistics.

pub mod action;
mod collection;
mod command;
mod cursor;
mod database;
mod error;
pub mod options;
mod results;
mod session;

pub use bson;
pub use collection::Collection;
pub use cursor::{ChangeStream, Cursor};
pub use database::{Database, Durability, OpenOptions};
pub use error::{CommandError, Error, Result, WriteError};
pub use results::{DeleteResult, InsertManyResult, InsertOneResult, UpdateResult};
pub use session::Session;
