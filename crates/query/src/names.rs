//! Which names a database or a collection may have.
//!
//! Every command, every stage that names a collection (`$lookup`, `$graphLookup`, `$unionWith`, `$out`, `$merge`) and
//! every view asks here, so that no way leads to a name that another way refuses. A zero byte matters most: a name is
//! a field of replies, and a field's name ends at its first zero byte.

use kilim_error::{Error, ErrorCode, Result};

/// A database's name in bytes, as on MongoDB.
pub const DATABASE_BYTES_MAX: usize = 63;

/// Refuses a database's name that MongoDB refuses in any command.
pub fn check_database(name: &str) -> Result<()> {
    match is_database(name) {
        true => Ok(()),
        false => Err(invalid(format!("Invalid database name: '{name}'"))),
    }
}

/// Refuses a collection's full name that MongoDB refuses in any command, except that the collection's own name may be
/// empty. Callers refuse an empty name with a message of their own. Also refuses MongoDB's oplog, which is not there: who
/// finds nothing in it would take it for one in which nothing happens.
pub fn check_parts(database: &str, collection: &str) -> Result<()> {
    if database.contains('\0') || collection.contains('\0') {
        return Err(invalid("namespaces cannot have embedded null characters".to_owned()));
    }
    if database.contains('.') {
        return Err(invalid(format!("'.' is an invalid character in the database name: {database}")));
    }
    if collection.starts_with('.') {
        return Err(invalid(format!("Collection names cannot start with '.': {collection}")));
    }
    if (database, collection) == ("local", "oplog.rs") {
        return Err(Error::user(
            ErrorCode::NotImplemented,
            "local.oplog.rs is not supported by Kilim, whose change log is no oplog: read changes by change streams",
        ));
    }
    Ok(())
}

/// Whether a database may have the name.
pub fn is_database(name: &str) -> bool {
    let bad = |character: char| matches!(character, '/' | '\\' | '.' | ' ' | '"' | '\0' | '$');
    !name.is_empty() && name.len() <= DATABASE_BYTES_MAX && !name.contains(bad)
}

fn invalid(message: String) -> Error {
    Error::user(ErrorCode::InvalidNamespace, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zero_byte_stands_in_no_name() {
        for (database, collection) in [("a", "b\0"), ("a\0", "b"), ("a", "\0")] {
            let error = check_parts(database, collection).expect_err("a zero byte");
            assert_eq!(error.code(), ErrorCode::InvalidNamespace);
        }
        assert!(check_database("a\0").is_err());
    }

    #[test]
    fn names_are_those_that_mongod_accepts() {
        for name in ["a", "A*B", "a<b", "a|b", "a?b", "a:b", "é", &"x".repeat(63)] {
            assert!(is_database(name), "{name}");
        }
        for name in ["", "a b", "$x", "a.b", "a/b", "a\\b", "\"a", &"x".repeat(64)] {
            assert!(!is_database(name), "{name}");
        }
        for name in ["a..b", "a.", " ", "$x", "system.x", ""] {
            assert!(check_parts("a", name).is_ok(), "{name}");
        }
    }
}
