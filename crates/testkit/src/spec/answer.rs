//! A server's answer to one step, stripped of what differs from run to run.

use std::time::{SystemTime, UNIX_EPOCH};

use kilim_bson::{Document, RawDocument, RawValue, Value, Writer};
use kilim_client::Failure;

use crate::shell::{ANY, CURSOR, print};

/// What a question is answered with.
#[derive(Debug, Clone)]
pub enum Answer {
    /// A whole reply. The order of its outermost fields means nothing to a client.
    Reply(Document),
    /// Documents, or values, in order.
    Rows(Vec<Value>),
    /// The same in any order.
    Set(Vec<Value>),
    /// Lines of text: an error, a plan.
    Text(Vec<String>),
    /// The command failed, and no failure was asked for.
    Failed(Failure),
    /// The command succeeded, and a failure was asked for.
    Succeeded,
}

impl Answer {
    /// As it stands in a spec.
    pub fn lines(&self) -> Vec<String> {
        match self {
            Answer::Reply(reply) => vec![print(RawValue::Document(reply.as_raw()))],
            Answer::Rows(values) | Answer::Set(values) => {
                values.iter().map(|value| print(value.as_raw())).collect()
            }
            Answer::Text(lines) => lines.clone(),
            Answer::Failed(failure) => {
                vec![format!("! failed with {} {}: {}", failure.code, failure.name, failure.message)]
            }
            Answer::Succeeded => vec!["! succeeded".to_owned()],
        }
    }

    /// The same with `<any>` where another run would answer differently: identifiers and times made
    /// during this one. For recording; a check compares against the `<any>`.
    pub fn with_volatile_values_hidden(self) -> Answer {
        let hide = |value: Value| rewrite(value.as_raw(), "", &mut |name, value| hide_volatile(name, value));
        match self {
            Answer::Reply(reply) => match hide(Value::Document(reply)) {
                Value::Document(reply) => Answer::Reply(reply),
                _ => unreachable!("a document is rewritten to a document"),
            },
            Answer::Rows(values) => Answer::Rows(values.into_iter().map(hide).collect()),
            Answer::Set(values) => Answer::Set(values.into_iter().map(hide).collect()),
            other => other,
        }
    }
}

/// Fields that replica sets add to every reply.
const ADDED: [&str; 6] = ["$clusterTime", "operationTime", "electionId", "opTime", "lsid", "signature"];

/// A reply without what the server adds, with `<db>` for the case's database and `<cursor>` for a
/// cursor's id.
pub(super) fn normalise(reply: RawDocument<'_>, names: &Names<'_>) -> Document {
    let mut kept = Writer::new();
    for (name, value) in reply.iter() {
        if ADDED.contains(&name) {
            continue;
        }
        // `ok` is a double on the wire; in a spec it is just 1.
        if name == "ok" && matches!(value, RawValue::Double(1.0)) {
            kept.append(name, RawValue::Int32(1));
            continue;
        }
        kept.append(name, names.in_reply(value, name).as_raw());
    }
    kept.finish()
}

/// The names that differ from run to run, on both sides of the wire.
pub(super) struct Names<'a> {
    pub database: &'a str,
    /// The cursor opened last, or zero.
    pub cursor: i64,
}

/// Below this, a number that equals a cursor's id may as well be a count.
const CURSOR_ID_MIN: i64 = 1_000_000;

impl Names<'_> {
    pub fn in_command(&self, command: &Document) -> Document {
        let rewritten = rewrite(RawValue::Document(command.as_raw()), "", &mut |_, value| match value {
            RawValue::String(text) if text.contains("<db>") => {
                Some(Value::String(text.replace("<db>", self.database)))
            }
            RawValue::JavaScript(CURSOR) => Some(Value::Int64(self.cursor)),
            _ => None,
        });
        match rewritten {
            Value::Document(command) => command,
            _ => unreachable!("a document is rewritten to a document"),
        }
    }

    pub fn in_reply(&self, value: RawValue<'_>, name: &str) -> Value {
        rewrite(value, name, &mut |_, value| match value {
            RawValue::String(text) => Some(Value::String(self.in_text(text))),
            RawValue::Int64(id) if id == self.cursor && id.abs() >= CURSOR_ID_MIN => {
                Some(Value::JavaScript(CURSOR.to_owned()))
            }
            _ => None,
        })
    }

    pub fn in_text(&self, text: &str) -> String {
        let text = text.replace(self.database, "<db>");
        if self.cursor.abs() >= CURSOR_ID_MIN { text.replace(&self.cursor.to_string(), CURSOR) } else { text }
    }
}

fn hide_volatile(name: &str, value: RawValue<'_>) -> Option<Value> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()) as i64;
    let recent = |seconds: i64| (now - 600..now + 600).contains(&seconds);
    let volatile = match value {
        RawValue::ObjectId(id) => {
            let [a, b, c, d, ..] = id.to_bytes();
            recent(i64::from(u32::from_be_bytes([a, b, c, d])))
        }
        RawValue::DateTime(millis) => recent(millis / 1000),
        RawValue::Timestamp(stamp) => recent(i64::from(stamp.seconds)),
        RawValue::Binary { subtype: 4, .. } => name == "uuid",
        _ => false,
    };
    volatile.then(|| Value::JavaScript(ANY.to_owned()))
}

/// Rebuilds a value, replacing what `change` gives a replacement for. `change` sees each field's name.
fn rewrite<F>(value: RawValue<'_>, name: &str, change: &mut F) -> Value
where
    F: FnMut(&str, RawValue<'_>) -> Option<Value>,
{
    if let Some(changed) = change(name, value) {
        return changed;
    }
    match value {
        RawValue::Document(document) => {
            let mut writer = Writer::new();
            for (name, value) in document.iter() {
                writer.append(name, rewrite(value, name, change).as_raw());
            }
            Value::Document(writer.finish())
        }
        RawValue::Array(array) => {
            Value::Array(array.iter().map(|value| rewrite(value, name, change)).collect())
        }
        other => other.to_value(),
    }
}
