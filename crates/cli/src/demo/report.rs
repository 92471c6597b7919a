//! The table that the demo is for.

use anyhow::Result;
use kilim_bson::doc;
use kilim_client::{Client, whole};

use super::shop;
use super::truth::Truth;
use crate::connect::explained;
use crate::output::say;
use crate::table::Table;
use crate::text::grouped;

pub(super) fn side_by_side(by_hand: &Truth, declared: &Truth) -> Result<()> {
    let mut table =
        Table::new(&["", "#DOCUMENTS", "#BY HAND", "#TRUTH", "#WRONG", "#DECLARED", "#TRUTH", "#WRONG"]);
    for (hand, own) in by_hand.rows.iter().zip(&declared.rows) {
        table.row([
            hand.what.to_owned(),
            grouped(own.of),
            hand.stored.clone(),
            hand.true_value.clone(),
            grouped(hand.wrong),
            own.stored.clone(),
            own.true_value.clone(),
            grouped(own.wrong),
        ]);
    }
    table.print()?;
    for (label, truth) in [("By hand", by_hand), ("Declared", declared)] {
        let examples: Vec<&str> = truth.rows.iter().filter_map(|row| row.example.as_deref()).collect();
        if !examples.is_empty() {
            say!("\n{label}, for example:")?;
            for example in examples {
                say!("  {example}")?;
            }
        }
    }
    Ok(())
}

/// What the server finds when it computes again what was declared; whether all of it is true.
pub(super) fn verified(client: &mut Client, database: &str) -> Result<bool> {
    let mut parts = Vec::new();
    let mut all = true;
    for (collection, name) in shop::names() {
        let reply =
            client.run(database, doc! {"verifyPattern": collection, "name": name}).map_err(explained)?;
        let number = |field| whole(reply.get(field)).unwrap_or(-1);
        all &= number("wrong") == 0;
        parts.push(format!("{name} {} of {}", grouped(number("wrong")), grouped(number("checked"))));
    }
    say!("verifyPattern finds wrong:\n  {}.", parts.join(", "))?;
    Ok(all)
}
