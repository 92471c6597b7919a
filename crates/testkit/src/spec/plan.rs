//! An explain reply as a skeleton: stages nested by indentation, indexes, bounds, and what was examined.
//!
//! ```text
//! FETCH
//!   IXSCAN a_1 {a: [1, 1]}
//! nReturned: 1, keysExamined: 1, docsExamined: 1
//! ```

use kilim_bson::{RawDocument, RawValue};
use kilim_client::whole;

use crate::shell::print;

pub(super) fn skeleton(explain: RawDocument<'_>) -> Vec<String> {
    let mut lines = Vec::new();
    let mut statistics = explain.get("executionStats").and_then(RawValue::as_document);
    match explain.get("stages").and_then(RawValue::as_array) {
        Some(stages) => {
            for stage in stages.iter().filter_map(RawValue::as_document) {
                let Some((name, body)) = stage.iter().next() else { continue };
                lines.push(name.to_owned());
                if let Some(body) = body.as_document().filter(|_| name == "$cursor") {
                    winning_plan(body, 1, &mut lines);
                    statistics = body.get("executionStats").and_then(RawValue::as_document);
                }
            }
        }
        None => winning_plan(explain, 0, &mut lines),
    }
    if let Some(statistics) = statistics {
        let count = |field| whole(statistics.get(field)).unwrap_or(-1);
        lines.push(format!(
            "nReturned: {}, keysExamined: {}, docsExamined: {}",
            count("nReturned"),
            count("totalKeysExamined"),
            count("totalDocsExamined"),
        ));
    }
    lines
}

fn winning_plan(explain: RawDocument<'_>, depth: usize, lines: &mut Vec<String>) {
    let plan =
        explain.get("queryPlanner").and_then(RawValue::as_document).and_then(|it| it.get("winningPlan"));
    let Some(plan) = plan.and_then(RawValue::as_document) else { return };
    // mongod's slot-based engine puts the tree one level lower.
    stage(plan.get("queryPlan").and_then(RawValue::as_document).unwrap_or(plan), depth, lines);
}

fn stage(stage_document: RawDocument<'_>, depth: usize, lines: &mut Vec<String>) {
    let text = |field| stage_document.get(field).and_then(RawValue::as_str);
    let mut line = "  ".repeat(depth) + text("stage").unwrap_or("?");
    let mut add = |word: &str| {
        line.push(' ');
        line.push_str(word);
    };
    if let Some(index) = text("indexName") {
        add(index);
    }
    if text("direction") == Some("backward") {
        add("backward");
    }
    if stage_document.get("isMultiKey").and_then(RawValue::as_bool) == Some(true) {
        add("multikey");
    }
    if let Some(bounds) = stage_document.get("indexBounds").and_then(RawValue::as_document) {
        add(&print_bounds(bounds));
    }
    for field in ["sortPattern", "limitAmount", "skipAmount"] {
        if let Some(value) = stage_document.get(field) {
            // Counts come as int or long, as the engine pleases.
            add(&whole(Some(value)).map_or_else(|| print(value), |count| count.to_string()));
        }
    }
    lines.push(line);
    if let Some(input) = stage_document.get("inputStage").and_then(RawValue::as_document) {
        stage(input, depth + 1, lines);
    }
    if let Some(inputs) = stage_document.get("inputStages").and_then(RawValue::as_array) {
        for input in inputs.iter().filter_map(RawValue::as_document) {
            stage(input, depth + 1, lines);
        }
    }
}

/// `{a: [1, 1] [3, 3], b: [MinKey, MaxKey]}`; counting stages have another form, printed as it is.
fn print_bounds(bounds: RawDocument<'_>) -> String {
    let fields = bounds.iter().map(|(name, value)| {
        let intervals: Option<Vec<&str>> =
            value.as_array().map(|it| it.iter().filter_map(RawValue::as_str).collect());
        match intervals {
            Some(intervals) => format!("{name}: {}", intervals.join(" ")),
            None => format!("{name}: {}", print(value)),
        }
    });
    format!("{{{}}}", fields.collect::<Vec<_>>().join(", "))
}
