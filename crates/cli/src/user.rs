//! `kilim user`: users from a terminal. A password comes from a prompt or a file, never from an argument, which others on the
//! machine could see.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::{Args, Subcommand};
use kilim_bson::{Document, RawValue, Value, doc};
use kilim_client::check_reply;
use kilim_engine::{Durability, Engine, EngineOptions, StorageOptions};
use kilim_server::run_in_process;

use crate::confirm::ask_password;
use crate::connect::{Place, explained, text};
use crate::data_directory;
use crate::output::say;
use crate::table::Table;

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct User {
    #[command(flatten)]
    place: Place,

    #[command(subcommand)]
    verb: Verb,
}

const EXAMPLES: &str = "\
Users belong to the database that --db names, or the URI; without either to admin.

Examples:
  kilim user add ann --role root
      The first user of a server with --auth: from the same machine nobody need log in for it.
  kilim user add shop --db shop --role readWrite --password-file secret.txt
  kilim user list --uri mongodb://ann@127.0.0.1/admin
  kilim user grant shop --db shop --role dbAdmin
  kilim user passwd ann --data /var/lib/kilim
      A lost password: while no server uses the data.";

#[derive(Debug, Subcommand)]
enum Verb {
    /// Make a user.
    Add {
        name: String,
        #[command(flatten)]
        roles: Roles,
        #[command(flatten)]
        password: Password,
    },
    /// Show users and their roles.
    List {
        /// Of all databases.
        #[arg(long)]
        all: bool,
    },
    /// Give a user another password.
    Passwd {
        name: String,
        #[command(flatten)]
        password: Password,
        /// Directory of the data of a server that is not running, in place of a connection.
        #[arg(long, value_name = "DIR")]
        data: Option<PathBuf>,
    },
    /// Remove a user.
    Drop { name: String },
    /// Give roles to a user.
    Grant {
        name: String,
        #[command(flatten)]
        roles: Roles,
    },
    /// Take roles from a user.
    Revoke {
        name: String,
        #[command(flatten)]
        roles: Roles,
    },
}

#[derive(Debug, Args)]
struct Roles {
    /// A role of the user's database, or ROLE@DB of another; may be given several times.
    #[arg(long = "role", value_name = "ROLE", required = true)]
    roles: Vec<String>,
}

#[derive(Debug, Args)]
struct Password {
    /// The file whose first line is the password, in place of a prompt.
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
}

impl User {
    pub(crate) fn run(self) -> Result<ExitCode> {
        if let Verb::Passwd { name, password, data: Some(data) } = &self.verb {
            let db = self.place.db.as_deref().unwrap_or("admin");
            set_offline(data, db, name, &password.read(name)?)?;
            say!("{name}@{db} has another password")?;
            return Ok(ExitCode::SUCCESS);
        }
        let command = match &self.verb {
            Verb::Add { name, roles, password } => {
                doc! {"createUser": name, "pwd": password.read(name)?, "roles": roles.values()}
            }
            Verb::Passwd { name, password, .. } => doc! {"updateUser": name, "pwd": password.read(name)?},
            Verb::Drop { name } => doc! {"dropUser": name},
            Verb::Grant { name, roles } => doc! {"grantRolesToUser": name, "roles": roles.values()},
            Verb::Revoke { name, roles } => doc! {"revokeRolesFromUser": name, "roles": roles.values()},
            Verb::List { all: true } => doc! {"usersInfo": {"forAllDBs": true}},
            Verb::List { all: false } => doc! {"usersInfo": 1},
        };
        let mut session = self.place.open(Some("admin"))?;
        let reply = session.run(command).map_err(explained)?;
        let db = session.database();
        match &self.verb {
            Verb::List { .. } => show(&reply)?,
            Verb::Add { name, .. } => say!("{name}@{db} is there")?,
            Verb::Passwd { name, .. } => say!("{name}@{db} has another password")?,
            Verb::Drop { name } => say!("{name}@{db} is gone")?,
            Verb::Grant { name, .. } | Verb::Revoke { name, .. } => say!("{name}@{db} has other roles")?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Roles {
    fn values(&self) -> Vec<Value> {
        let role = |text: &String| match text.split_once('@') {
            Some((role, db)) => Value::Document(doc! {"role": role, "db": db}),
            None => Value::from(&**text),
        };
        self.roles.iter().map(role).collect()
    }
}

impl Password {
    /// The new password of a user.
    fn read(&self, user: &str) -> Result<String> {
        let password = match &self.password_file {
            Some(file) => {
                let text = fs::read_to_string(file)
                    .with_context(|| format!("cannot read the password from {}", file.display()))?;
                text.lines().next().unwrap_or_default().to_owned()
            }
            None => {
                let password = ask_password(&format!("New password of {user}: "))?;
                ensure!(ask_password("Again: ")? == password, "the two passwords differ");
                password
            }
        };
        ensure!(!password.is_empty(), "a password has at least one character");
        Ok(password)
    }
}

/// Writes a new password into the data of a server that is not running.
fn set_offline(data: &Path, db: &str, user: &str, password: &str) -> Result<()> {
    ensure!(data.is_dir(), "{} is no directory", data.display());
    data_directory::check_holds_database(data)?;
    let options = EngineOptions {
        data: Some(data.to_owned()),
        durability: Durability::Durable,
        storage: StorageOptions::default(),
        test_commands: false,
    };
    let engine =
        Engine::open(options).with_context(|| format!("cannot open the data in {}", data.display()))?;
    let reply = run_in_process(&engine, doc! {"updateUser": user, "pwd": password, "$db": db});
    let closed = engine.close();
    check_reply(reply.as_raw())?;
    closed.context("cannot close the data")?;
    Ok(())
}

fn show(reply: &Document) -> Result<()> {
    let mut table = Table::new(&["user", "database", "roles", "logs in by"]);
    let users = reply.get("users").and_then(RawValue::as_array);
    for user in users.into_iter().flat_map(|users| users.iter()).filter_map(RawValue::as_document) {
        let user = user.to_document();
        let list = |name: &str, show: &dyn Fn(RawValue<'_>) -> String| {
            let values = user.get(name).and_then(RawValue::as_array);
            values.into_iter().flat_map(|values| values.iter()).map(show).collect::<Vec<_>>().join(", ")
        };
        let role = |role: RawValue<'_>| {
            let role = role.as_document().map(|role| role.to_document()).unwrap_or_default();
            format!("{}@{}", text(&role, "role"), text(&role, "db"))
        };
        let mechanism = |name: RawValue<'_>| name.as_str().unwrap_or_default().to_owned();
        table.row([
            text(&user, "user").to_owned(),
            text(&user, "db").to_owned(),
            list("roles", &role),
            list("mechanisms", &mechanism),
        ]);
    }
    table.print()?;
    Ok(())
}
