//! What runs add to the client: messages with numbers patched in, and transactions.
//!
//! Crash runs, histories and the benchmark use [`Link`] instead of a driver, because they must see every
//! acknowledgement themselves: it never retries. A [`Template`] is built once and sent many times, cheap
//! enough to load a server from the same machine.

use kilim_bson::{Document, Value, doc};
pub use kilim_client::{Client as Link, Fault, check_reply, message, whole};

/// A message whose commands differ in one int32, patched in place.
pub struct Template {
    message: Vec<u8>,
    at: Vec<usize>,
}

impl Template {
    /// Stands for the number in the command that a template is made from.
    pub const MARK: i32 = 0x4b49_4c4d;

    pub fn new(database: &str, mut command: Document) -> Template {
        command.push("$db", database);
        let message = message(&command);
        let mark = Template::MARK.to_le_bytes();
        let at = (0..message.len() - 3).filter(|&i| message[i..i + 4] == mark).collect();
        Template { message, at }
    }

    /// Marks become numbers that grow by one, in the order in which they stand.
    pub fn counting_from(&mut self, first: i32) -> &[u8] {
        for (number, &at) in (first..).zip(&self.at) {
            self.message[at..at + 4].copy_from_slice(&number.to_le_bytes());
        }
        &self.message
    }

    /// All marks become the same number.
    pub fn with(&mut self, number: i32) -> &[u8] {
        for &at in &self.at {
            self.message[at..at + 4].copy_from_slice(&number.to_le_bytes());
        }
        &self.message
    }
}

/// A multi-statement transaction on a link. Dropped without an end, it is left to the server's timeout.
pub struct Transaction<'l> {
    link: &'l mut Link,
    session: Value,
    number: i64,
    started: bool,
}

impl<'l> Transaction<'l> {
    /// `number` grows with each transaction of the session.
    pub fn new(link: &'l mut Link, session: [u8; 16], number: i64) -> Transaction<'l> {
        let session = Value::Document(doc! {"id": Value::Binary { subtype: 4, bytes: session.to_vec() }});
        Transaction { link, session, number, started: false }
    }

    fn dress(&mut self, mut command: Document) -> Document {
        command.push("lsid", self.session.clone());
        command.push("txnNumber", self.number);
        command.push("autocommit", false);
        if !self.started {
            command.push("startTransaction", true);
            command.push("readConcern", doc! {"level": "snapshot"});
            self.started = true;
        }
        command
    }

    pub fn run(&mut self, database: &str, command: Document) -> Result<Document, Fault> {
        let command = self.dress(command);
        self.link.run(database, command)
    }

    pub fn commit(mut self) -> Result<(), Fault> {
        let command = self.dress(doc! {"commitTransaction": 1, "writeConcern": {"w": "majority", "j": true}});
        self.link.run("admin", command).map(drop)
    }

    pub fn abort(mut self) -> Result<(), Fault> {
        let command = self.dress(doc! {"abortTransaction": 1});
        self.link.run("admin", command).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use kilim_wire::Message;

    use super::*;

    #[test]
    fn a_template_patches_every_mark() {
        let mut template =
            Template::new("d", doc! {"find": "c", "filter": {"_id": Template::MARK, "n": Template::MARK}});
        let body = |bytes: &[u8]| format!("{:?}", Message::parse(bytes).unwrap().1);
        assert_eq!(body(template.with(7)).matches("Int32(7)").count(), 2);
        assert_eq!(body(template.with(8)).matches("Int32(8)").count(), 2);
    }
}
