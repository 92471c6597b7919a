//! Spec files to cases. Line by line; a command may go on over several lines until its brackets close.

use std::path::Path;

use anyhow::{Result, anyhow, bail};

use super::{Action, Case, Expectation, SpecFile, Step, Target};
use crate::shell::Parser;

const RULE: &str = "----";

pub fn parse(path: &Path, text: &str) -> Result<SpecFile> {
    let mut reader = Reader { text, at: 0, line: 1 };
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let about = leading_comment(text);
    // What stands before the first `===` belongs to every case, or is the only case.
    let mut head = Case { title: stem, line: 1, target: Target::Both, fails: None, steps: Vec::new() };
    let mut cases: Vec<Case> = Vec::new();
    while let Some(line) = reader.peek_line() {
        let number = reader.line;
        let located = |error: anyhow::Error| anyhow!("{}:{error:#}", path.display());
        if let Some(title) = line.strip_prefix("===") {
            if let Some(step) = head.steps.iter().find(|step| step.action.is_question()) {
                return Err(located(anyhow!("{}: a question needs a case: put it below a `===`", step.line)));
            }
            let title = title.trim().to_owned();
            if cases.iter().any(|case| case.title == title) {
                return Err(located(anyhow!("{number}: two cases are called {title:?}")));
            }
            cases.push(Case { title, line: number, ..head.clone() });
            reader.skip_line();
            continue;
        }
        let case = cases.last_mut().unwrap_or(&mut head);
        item(&mut reader, line, case).map_err(located)?;
    }
    if cases.is_empty() {
        cases.push(head);
    }
    for case in &cases {
        if !case.steps.iter().any(|step| step.action.is_question()) {
            bail!("{}:{}: case {:?} asks nothing", path.display(), case.line, case.title);
        }
    }
    Ok(SpecFile { path: path.to_owned(), text: text.to_owned(), about, cases })
}

/// One line that says something: a heading, or a step with what follows it.
fn item(reader: &mut Reader<'_>, line: &str, case: &mut Case) -> Result<()> {
    let number = reader.line;
    let trimmed = line.trim();
    if trimmed.is_empty() || trimmed.starts_with('#') {
        reader.skip_line();
        return Ok(());
    }
    if let Some(rest) = trimmed.strip_prefix("target:") {
        case.target = target(rest.trim()).ok_or_else(|| {
            anyhow!("{number}: a target is `mongod kilim`, or `kilim \"why\"`, or `mongod \"why\"`")
        })?;
        reader.skip_line();
        return Ok(());
    }
    if let Some(rest) = trimmed.strip_prefix("fails:") {
        let reason = rest.trim().strip_prefix("kilim").and_then(|reason| quoted(reason.trim()));
        case.fails = Some(reason.ok_or_else(|| anyhow!("{number}: write `fails: kilim \"reason\"`"))?);
        reader.skip_line();
        return Ok(());
    }
    case.steps.push(step(reader)?);
    Ok(())
}

fn step(reader: &mut Reader<'_>) -> Result<Step> {
    let line = reader.line;
    let keyword = reader.word().unwrap_or_default();
    let mut unordered = false;
    let mut session = None;
    let action = match keyword {
        "given" => {
            let collection = reader.collection()?;
            reader.end_of_line()?;
            let mut documents = Vec::new();
            while reader.peek_line().is_some_and(|line| line.trim_start().starts_with(['{', '#'])) {
                if reader.peek_line().is_some_and(|line| line.trim_start().starts_with('#')) {
                    reader.skip_line();
                    continue;
                }
                documents.push(reader.document()?);
                reader.end_of_line()?;
            }
            let end_line = reader.line;
            return Ok(Step {
                line,
                action: Action::Given { collection, documents },
                session,
                expectation: None,
                end_line,
            });
        }
        "index" => {
            let collection = reader.collection()?;
            let key = reader.document()?;
            let options =
                if reader.rest_of_line().starts_with('{') { reader.document()? } else { Default::default() };
            Action::Index { collection, key, options }
        }
        "begin" => {
            session = reader.session()?;
            if session.is_none() {
                bail!("{line}: write `begin @name`");
            }
            Action::Begin
        }
        "do" | "run" | "docs" | "error" | "error!" | "writeError" | "plan" => {
            if keyword == "docs" && reader.rest_of_line().starts_with("unordered") {
                reader.word();
                unordered = true;
            }
            session = reader.session()?;
            let command = reader.document()?;
            match keyword {
                "do" => Action::Do(command),
                "run" => Action::Run(command),
                "docs" => Action::Docs { unordered, command },
                "error" | "error!" => Action::Error { message: keyword == "error!", command },
                "writeError" => Action::WriteError(command),
                _ => Action::Plan(command),
            }
        }
        other => bail!("{line}: {other:?} is no step; see specs/README.md"),
    };
    reader.end_of_line()?;
    let end_line = reader.line;
    let expectation = reader.expectation();
    if expectation.is_some() && !action.is_question() {
        bail!("{end_line}: `{keyword}` takes no expectation");
    }
    Ok(Step { line, action, session, expectation, end_line })
}

fn target(text: &str) -> Option<Target> {
    match text.split_whitespace().collect::<Vec<_>>().as_slice() {
        ["mongod", "kilim"] | ["kilim", "mongod"] => return Some(Target::Both),
        _ => {}
    }
    let (server, why) = text.split_once(' ')?;
    let why = quoted(why.trim())?;
    match server {
        "kilim" => Some(Target::Kilim(why)),
        "mongod" => Some(Target::Mongod(why)),
        _ => None,
    }
}

fn quoted(text: &str) -> Option<String> {
    let inner = text.strip_prefix('"')?.strip_suffix('"')?;
    (!inner.is_empty()).then(|| inner.to_owned())
}

fn leading_comment(text: &str) -> String {
    let lines = text.lines().take_while(|line| line.starts_with('#'));
    lines.map(|line| line.trim_start_matches('#').trim()).collect::<Vec<_>>().join(" ")
}

/// A place in the text that knows its line.
struct Reader<'a> {
    text: &'a str,
    at: usize,
    line: usize,
}

impl<'a> Reader<'a> {
    /// From here to the end of the line; none at the end of the file.
    fn peek_line(&self) -> Option<&'a str> {
        let rest = &self.text[self.at..];
        (!rest.is_empty()).then(|| rest.split('\n').next().unwrap_or_default())
    }

    fn rest_of_line(&self) -> &'a str {
        self.peek_line().unwrap_or_default().trim_start()
    }

    fn skip_line(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.find('\n').map_or(rest.len(), |end| end + 1);
        self.line += 1;
    }

    fn skip_blanks(&mut self) {
        let line = self.peek_line().unwrap_or_default();
        self.at += line.len() - line.trim_start().len();
    }

    fn word(&mut self) -> Option<&'a str> {
        self.skip_blanks();
        let line = self.peek_line()?;
        let end = line.find(char::is_whitespace).unwrap_or(line.len());
        self.at += end;
        Some(&line[..end])
    }

    fn collection(&mut self) -> Result<String> {
        let name = self.word().unwrap_or_default();
        if name.is_empty() || name.starts_with('{') {
            bail!("{}: expected the name of a collection", self.line);
        }
        Ok(name.to_owned())
    }

    fn session(&mut self) -> Result<Option<String>> {
        if !self.rest_of_line().starts_with('@') {
            return Ok(None);
        }
        let name = self.word().unwrap_or_default();
        if name.len() == 1 {
            bail!("{}: a session has a name, as in @a", self.line);
        }
        Ok(Some(name[1..].to_owned()))
    }

    fn document(&mut self) -> Result<kilim_bson::Document> {
        self.skip_blanks();
        let mut parser = Parser::new(self.text, self.at);
        match parser.document() {
            Ok(document) => {
                let end = parser.position();
                self.line += self.text[self.at..end].matches('\n').count();
                self.at = end;
                Ok(document)
            }
            Err(error) => {
                let line = self.line + self.text[self.at..error.at].matches('\n').count();
                bail!("{line}: {}", error.message)
            }
        }
    }

    fn end_of_line(&mut self) -> Result<()> {
        let rest = self.rest_of_line();
        if !(rest.is_empty() || rest.starts_with('#')) {
            bail!("{}: unexpected {rest:?}", self.line);
        }
        self.skip_line();
        Ok(())
    }

    fn expectation(&mut self) -> Option<Expectation> {
        if self.peek_line()?.trim_end() != RULE {
            return None;
        }
        let line = self.line;
        self.skip_line();
        let mut lines = Vec::new();
        while let Some(text) = self.peek_line() {
            if text.trim().is_empty() || text.starts_with("===") {
                break;
            }
            lines.push(text.trim_end().to_owned());
            self.skip_line();
        }
        Some(Expectation { line, lines })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_before_the_first_case_belongs_to_all() {
        let text = "# About.\n\ngiven t\n{_id: 1}\n{_id: 2,\n a: 3}\nindex t {a: 1} {unique: true}\n\n=== one\nrun @a {ping: 1}\n----\n{ok: 1}\n\n=== two\nfails: kilim \"later\"\ndocs unordered {find: \"t\"}\n";
        let file = parse(Path::new("x/y.spec"), text).unwrap();
        assert_eq!(file.about, "About.");
        assert_eq!(file.cases.len(), 2);
        let [one, two] = &file.cases[..] else { unreachable!() };
        assert_eq!((one.steps.len(), two.steps.len()), (3, 3));
        assert_eq!(one.steps[2].line, 10);
        assert_eq!(one.steps[2].session.as_deref(), Some("a"));
        assert_eq!(one.steps[2].expectation.as_ref().unwrap().lines, ["{ok: 1}"]);
        assert_eq!(two.fails.as_deref(), Some("later"));
        assert!(two.steps[2].expectation.is_none() && two.steps[2].end_line == 17);
    }

    #[test]
    fn faults_name_their_line() {
        for (text, fault) in [
            ("run {ping: 1\n", "x.spec:2: expected `}`"),
            ("walk {ping: 1}\n", "x.spec:1: \"walk\" is no step; see specs/README.md"),
            ("given t\n{a: 1} {b: 1}\n", "x.spec:2: unexpected \"{b: 1}\""),
            ("given t\n{a: 1}\n", "x.spec:1: case \"x\" asks nothing"),
            ("do {ping: 1}\n----\n{ok: 1}\n", "x.spec:2: `do` takes no expectation"),
        ] {
            assert_eq!(parse(Path::new("x.spec"), text).err().unwrap().to_string(), fault);
        }
    }
}
