//! `kilim serve --config FILE`: the options of `serve` from a YAML file.
//!
//! The file is a list of options by their long names, without dashes: `port: 27017`, `tls: require`, `auth: true`. Each becomes
//! an argument, so the command line has the one set of rules. What the command line says itself goes before the file.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use clap::parser::ValueSource;
use clap::{ArgAction, Command};
use yaml_rust2::{Yaml, YamlLoader};

/// What a file says: options and their values, in its order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Config {
    pub(crate) options: Vec<(String, String)>,
}

/// The arguments, with those of the file of `--config` among them where they name one, and that file.
pub(crate) fn with_file(command: Command, given: &[OsString]) -> Result<(Vec<OsString>, Option<PathBuf>)> {
    let alone = || Ok((given.to_vec(), None));
    let is_serve = given.get(1).is_some_and(|verb| verb == "serve");
    let is_named =
        given.iter().any(|one| one == "--config" || one.as_encoded_bytes().starts_with(b"--config="));
    if !is_serve || !is_named {
        return alone();
    }
    let serve = command.find_subcommand("serve").context("there is a command serve")?.clone();
    // Faults are told when all of it is parsed.
    let Ok(matches) = command.ignore_errors(true).try_get_matches_from(given) else {
        return alone();
    };
    let Some(matches) = matches.subcommand_matches("serve") else { return alone() };
    let Some(file) = matches.get_one::<PathBuf>("config") else { return alone() };
    let config = Config::read(file)?;
    let mut arguments = given[..2].to_vec();
    for (name, value) in &config.options {
        let argument = serve.get_arguments().find(|argument| argument.get_long() == Some(name));
        let known =
            argument.filter(|argument| !matches!(argument.get_id().as_str(), "config" | "help" | "version"));
        let Some(argument) = known else {
            bail!("{}: there is no option '{name}'; `kilim serve --help` lists them", file.display());
        };
        if matches.value_source(argument.get_id().as_str()) == Some(ValueSource::CommandLine) {
            continue;
        }
        match argument.get_action() {
            ArgAction::SetTrue => match &**value {
                "true" => arguments.push(format!("--{name}").into()),
                "false" => {}
                other => bail!("{}: {name} is true or false, not {other}", file.display()),
            },
            _ => {
                let mut option = OsString::from(format!("--{name}="));
                option.push(OsStr::new(value));
                arguments.push(option);
            }
        }
    }
    arguments.extend(given[2..].iter().cloned());
    Ok((arguments, Some(file.clone())))
}

impl Config {
    pub(crate) fn read(file: &Path) -> Result<Config> {
        let text =
            std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        Config::parse(&text).with_context(|| format!("{} is no configuration", file.display()))
    }

    fn parse(text: &str) -> Result<Config> {
        let documents = YamlLoader::load_from_str(text)
            .map_err(|error| anyhow::anyhow!("line {}: {}", error.marker().line(), error.info()))?;
        let mut options: Vec<(String, String)> = Vec::new();
        ensure!(documents.len() <= 1, "it holds several documents");
        let fields = match documents.into_iter().next() {
            None | Some(Yaml::Null) => return Ok(Config::default()),
            Some(Yaml::Hash(fields)) => fields,
            Some(_) => bail!("it is a list of options, such as `port: 27017`"),
        };
        for (name, value) in fields {
            let Yaml::String(name) = name else { bail!("an option's name is a word") };
            let value = match value {
                Yaml::String(text) | Yaml::Real(text) => text,
                Yaml::Integer(number) => number.to_string(),
                Yaml::Boolean(value) => value.to_string(),
                Yaml::Null => bail!("{name} has no value"),
                _ => bail!("{name} has one value, not a list of them"),
            };
            options.push((name, value));
        }
        Ok(Config { options })
    }

    /// The names of options that another file says something else about.
    pub(crate) fn differs_in<'c>(&'c self, other: &'c Config) -> Vec<&'c str> {
        let missing = |from: &'c Config, to: &'c Config| {
            from.options.iter().filter(|option| !to.options.contains(option)).map(|(name, _)| &**name)
        };
        let mut names: Vec<&str> = missing(self, other).chain(missing(other, self)).collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_a_list_of_options() {
        let config = Config::parse("port: 27018\nauth: true\ndata: /var/lib/kilim # here\n").unwrap();
        let option = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let expected = [option("port", "27018"), option("auth", "true"), option("data", "/var/lib/kilim")];
        assert_eq!(config.options, expected);
        assert_eq!(Config::parse("# nothing\n").unwrap(), Config::default());
        for wrong in
            ["- a", "port", "port: [1, 2]", "port:", "a: 1\n---\nb: 2", "a: {b: 1}", "a: b: c", "1: 2"]
        {
            assert!(Config::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_another_file_says_otherwise_is_named() {
        let parse = |text: &str| Config::parse(text).unwrap();
        let (before, after) = (parse("port: 1\nslow-ms: 5"), parse("slow-ms: 6\nport: 1\nauth: true"));
        assert_eq!(before.differs_in(&after), ["auth", "slow-ms"]);
    }
}
