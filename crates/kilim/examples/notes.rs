//! Notes on the command line, kept in a directory: `cargo run --example notes -- add "buy milk" home shop`.
//! The same directory can be served to any MongoDB client: `kilim serve --data notes`.

use kilim::Database;
use kilim::bson::{DateTime, doc, oid::ObjectId};
use serde::{Deserialize, Serialize};

#[derive(Debug, Serialize, Deserialize)]
struct Note {
    #[serde(rename = "_id")]
    id: ObjectId,
    text: String,
    tags: Vec<String>,
    written: DateTime,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let notes = Database::open("notes")?.collection::<Note>("notes");
    notes.create_index(doc! {"tags": 1, "written": -1}).run()?;
    let mut arguments = std::env::args().skip(1);
    match (arguments.next().as_deref(), arguments.next()) {
        (Some("add"), Some(text)) => {
            let (id, written) = (ObjectId::new(), DateTime::now());
            notes.insert_one(Note { id, text, tags: arguments.collect(), written }).run()?;
        }
        (Some("tagged"), Some(tag)) => {
            for note in notes.find(doc! {"tags": tag}).sort(doc! {"written": -1}).limit(20).run()? {
                let note = note?;
                println!("{}  {}", note.written.try_to_rfc3339_string()?, note.text);
            }
        }
        (Some("forget"), Some(tag)) => {
            let forgotten = notes.delete_many(doc! {"tags": tag}).run()?;
            println!("{} notes forgotten", forgotten.deleted_count);
        }
        _ => eprintln!("notes add TEXT [TAG…] | notes tagged TAG | notes forget TAG"),
    }
    Ok(())
}
