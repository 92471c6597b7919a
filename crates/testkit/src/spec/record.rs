//! Fills in expectations from a server's answers, leaving every other line as it was.

use anyhow::Result;

use super::{Against, Answer, Runner, SpecFile, matching};

/// The file's new text, and what could not be recorded: `(line, why)`.
pub struct Recording {
    pub text: String,
    pub problems: Vec<(usize, String)>,
}

/// Runs the cases that `chosen` picks on a mongod. An expectation that matches already stays as it
/// is written, so that `<any>` and `...` survive.
pub fn record(runner: &mut Runner, file: &SpecFile, chosen: &dyn Fn(&str) -> bool) -> Result<Recording> {
    let mut problems = Vec::new();
    // Lines to replace: from, to, by what. Counted from 0, `to` exclusive.
    let mut edits: Vec<(usize, usize, Vec<String>)> = Vec::new();
    for case in &file.cases {
        if !case.target.includes(Against::Mongod) || !chosen(&case.title) {
            continue;
        }
        let ran = runner.run(case, &mut |step, answer| {
            let Some(answer) = answer else { return true };
            if let Answer::Failed(_) | Answer::Succeeded = answer {
                problems.push((step.line, answer.lines().join(" ")));
                return true;
            }
            let (from, to) = match &step.expectation {
                Some(expectation) if matching::matches(expectation, &answer) == Ok(true) => return true,
                Some(expectation) => (expectation.line - 1, expectation.line + expectation.lines.len()),
                None => (step.end_line - 1, step.end_line - 1),
            };
            let mut lines = vec!["----".to_owned()];
            lines.extend(answer.with_volatile_values_hidden().lines());
            edits.push((from, to, lines));
            true
        });
        if let Err((line, error)) = ran {
            problems.push((line, format!("{error:#}")));
        }
    }
    let mut lines: Vec<String> = file.text.lines().map(str::to_owned).collect();
    for (from, to, replacement) in edits.into_iter().rev() {
        let next_is_text = lines.get(to).is_some_and(|line| !line.trim().is_empty());
        let blank = next_is_text.then(String::new);
        lines.splice(from..to, replacement.into_iter().chain(blank));
    }
    Ok(Recording { text: lines.join("\n") + "\n", problems })
}
