//! Commands as they may be shown: in errors, currentOp, profile and log. Secrets stand there as `xxx`, as on mongod.

use kilim_bson::{Document, RawDocument};

use crate::registry::{COMMANDS, CommandSpec, place};

const HIDDEN: &str = "xxx";

/// The fields of a command that nobody else shall see.
fn secrets(command: &str) -> &'static [&'static str] {
    match command {
        "createUser" | "updateUser" => &["pwd"],
        "saslStart" | "saslContinue" => &["payload"],
        "authenticate" => &["key", "nonce"],
        "hello" | "isMaster" => &["speculativeAuthenticate"],
        _ => &[],
    }
}

/// The command without its secrets; `None` if it has none.
pub(crate) fn redacted(spec: &CommandSpec, body: RawDocument<'_>) -> Option<Document> {
    if spec.name == "explain" {
        return explained(body);
    }
    let secrets = secrets(spec.name);
    if secrets.is_empty() || !body.iter().any(|(name, _)| secrets.contains(&name)) {
        return None;
    }
    let mut document = Document::new();
    for (name, value) in body.iter() {
        match secrets.contains(&name) {
            true => document.push(name, HIDDEN),
            false => document.push(name, value),
        }
    }
    Some(document)
}

/// An `explain` without the secrets of the command that is to be explained.
fn explained(body: RawDocument<'_>) -> Option<Document> {
    let inner = body.iter().next().and_then(|(_, inner)| inner.as_document())?;
    let spec = inner.iter().next().and_then(|(name, _)| place(name)).map(|place| &COMMANDS[place])?;
    let shown = redacted(spec, inner)?;
    let mut document = Document::new();
    for (position, (name, value)) in body.iter().enumerate() {
        match position {
            0 => document.push(name, shown.as_raw()),
            _ => document.push(name, value),
        }
    }
    Some(document)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kilim_bson::doc;

    #[test]
    fn passwords_are_not_shown() {
        let of = |name: &str| &COMMANDS[place(name).unwrap()];
        let command = doc! {"createUser": "ann", "pwd": "secret", "roles": []};
        let shown = redacted(of("createUser"), command.as_raw()).unwrap();
        assert_eq!(shown.as_bytes(), doc! {"createUser": "ann", "pwd": "xxx", "roles": []}.as_bytes());
        assert!(redacted(of("find"), doc! {"find": "x", "pwd": 1}.as_raw()).is_none());
        let command = doc! {"explain": {"createUser": "ann", "pwd": "secret"}, "$db": "shop"};
        let shown = redacted(of("explain"), command.as_raw()).unwrap();
        let wanted = doc! {"explain": {"createUser": "ann", "pwd": "xxx"}, "$db": "shop"};
        assert_eq!(shown.as_bytes(), wanted.as_bytes());
    }
}
