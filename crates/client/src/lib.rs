//! A small blocking client: one connection, one command at a time.
//!
//! The command line, the test kit and the benchmark talk to servers through it, Kilim or MongoDB. It sends
//! what it is given, hides nothing of the reply, and never retries: whoever counts acknowledgements must see
//! each of them. For applications there are MongoDB's drivers.
//!
//! ```no_run
//! # use kilim_bson::doc;
//! # use kilim_client::{Client, Uri};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let uri: Uri = "mongodb://127.0.0.1:27017/shop".parse()?;
//! let mut client = Client::connect(uri.address())?;
//! for order in client.documents("shop", doc! {"find": "orders"})? {
//!     println!("{:?}", order?);
//! }
//! # Ok(())
//! # }
//! ```

mod client;
mod cursor;
mod fault;
mod login;
pub mod shell;
mod uri;

pub use client::{Client, message};
pub use cursor::Cursor;
pub use fault::{Failure, Fault, check_reply};
pub use kilim_tls::ClientTlsOptions;
pub use login::{Login, LoginBy};
pub use uri::{Uri, UriError};

use kilim_bson::RawValue;

/// A whole number of any type: counts come as int32, int64 or double.
pub fn whole(value: Option<RawValue<'_>>) -> Option<i64> {
    match value? {
        RawValue::Int32(value) => Some(value.into()),
        RawValue::Int64(value) => Some(value),
        RawValue::Double(value) if value.fract() == 0.0 => Some(value as i64),
        _ => None,
    }
}
