//! The few options that verbs take: flags and `--name value`.

use std::str::FromStr;

use anyhow::{Context, Result, bail};

pub struct Arguments {
    given: Vec<String>,
    usage: &'static str,
}

impl Arguments {
    pub fn new(given: impl Iterator<Item = String>, usage: &'static str) -> Arguments {
        Arguments { given: given.collect(), usage }
    }

    pub fn flag(&mut self, name: &str) -> bool {
        let found = self.given.iter().position(|argument| argument == name);
        found.map(|at| self.given.remove(at)).is_some()
    }

    pub fn value<T: FromStr>(&mut self, name: &str) -> Result<Option<T>> {
        let Some(at) = self.given.iter().position(|argument| argument == name) else { return Ok(None) };
        self.given.remove(at);
        let text = (at < self.given.len()).then(|| self.given.remove(at));
        let text = text.with_context(|| format!("{name} takes a value"))?;
        text.parse().map(Some).map_err(|_| anyhow::anyhow!("{name} does not take {text:?}"))
    }

    /// Everything that is left, for a program further on.
    pub fn rest(self) -> Vec<String> {
        self.given
    }

    pub fn finish(self) -> Result<()> {
        match self.given.first() {
            None => Ok(()),
            Some(unknown) => bail!("{unknown:?} is not among the options: {}", self.usage),
        }
    }
}
