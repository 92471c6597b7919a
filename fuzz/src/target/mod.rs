//! What is asked of each part, one file a part: `check` takes any bytes, and panics where a promise is broken.

pub mod access;
pub mod bson;
pub mod certificate;
pub mod collation;
pub mod column;
#[cfg(feature = "database")]
pub mod command;
pub mod expression;
pub mod extended_json;
pub mod filter;
pub mod key_order;
pub mod pipeline;
pub mod projection;
#[cfg(feature = "storage")]
pub mod recovery;
pub mod sasl;
pub mod update;
pub mod validator;
pub mod wire;
