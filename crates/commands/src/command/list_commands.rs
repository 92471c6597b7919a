//! `listCommands`: this table.

use kilim_bson::{Document, doc};
use kilim_error::Result;

use crate::dispatch::Call;
use crate::registry::COMMANDS;

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let mut commands = Document::new();
    for spec in COMMANDS.iter().filter(|spec| !spec.test_only || call.engine.options.test_commands) {
        commands.push(
            spec.name,
            doc! {"help": spec.help, "adminOnly": spec.admin_only, "requiresAuth": false, "secondaryOk": true},
        );
    }
    Ok(doc! {"commands": commands})
}
