//! Plans as documents, in the form of MongoDB 6.0's `explain`.

mod print;
mod stage;

use kilim_bson::{Document, RawValue, Value, Writer};

pub use print::print_intervals;
pub(crate) use stage::{Style, append_counts, append_number, write};

use super::{Node, Trial};

/// A plan by itself.
pub fn plan_document(root: &Node) -> Document {
    let mut out = Writer::new();
    write(&mut out, root, None, Style { counts: false, projection: None });
    out.finish()
}

/// How a candidate did, as `$planCacheStats` shows it.
pub fn trial_document(trial: &Trial) -> Document {
    let mut out = Writer::new();
    write_run(&mut out, trial, None, Style { counts: true, projection: None });
    out.finish()
}

pub(crate) fn write_trial(out: &mut Writer, at: usize, trial: &Trial, style: Style<'_>) {
    out.open_document_at(at);
    write_run(out, trial, Some(trial.score), style);
    out.close();
}

fn write_run(out: &mut Writer, trial: &Trial, score: Option<f64>, style: Style<'_>) {
    append_number(out, "nReturned", trial.stats.stats.advanced);
    out.append("executionTimeMillisEstimate", RawValue::Int32(0));
    append_number(out, "totalKeysExamined", trial.stats.total_keys_examined());
    append_number(out, "totalDocsExamined", trial.stats.total_docs_examined());
    if let Some(score) = score {
        out.append("score", Value::Double(score).as_raw());
    }
    out.open_document("executionStages");
    write(out, &trial.node, Some(&trial.stats), style);
    out.close();
}
