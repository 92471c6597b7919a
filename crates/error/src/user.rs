//! An error that the caller made and can mend.

use crate::ErrorCode;

#[derive(Debug, Clone)]
pub struct UserError {
    pub code: ErrorCode,
    pub message: String,
    /// A BSON document whose fields join the error reply (`keyPattern` and `keyValue` of a
    /// duplicate key). Bytes, because this crate stands above BSON.
    pub details: Option<Box<[u8]>>,
}
