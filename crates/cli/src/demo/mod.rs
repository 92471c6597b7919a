//! `kilim demo`: a small shop, kept by hand and kept by declaration, under the same workload.
//!
//! By hand means the recipes that tutorials give, command by command, on the same server: running average,
//! `$push` with `$slice`, copied fields and `updateMany`. Where they say nothing, about edits and deletes, a
//! careful application's mirror image of them is run. The truth is computed in this process from the base
//! documents, so that what is compared does not depend on what is shown. A catalogue of variants, one with attributes, a
//! tree, a celebrity, two versions of an application and the readings of a sensor come last.

mod attributes;
mod by_hand;
mod catalogue;
mod celebrity;
mod clean_up;
mod report;
mod sensors;
mod shop;
mod tree;
mod truth;
mod versions;
mod workload;

use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use kilim_bson::doc;
use kilim_client::{Client, Uri};
use kilim_engine::{Engine, EngineOptions};
use kilim_server::{Commands, Limits, Listener, Protection};

use self::clean_up::CleanUp;
use self::truth::Truth;
use self::workload::{Keeping, Workload};
use crate::connect::{Encryption, UriParser, explained};
use crate::output::say;
use crate::progress::Progress;
use crate::text::grouped;

/// The shop kept by hand and the shop kept by declaration; names that nobody else uses.
const BY_HAND: &str = "kilim_demo_by_hand";
const DECLARED: &str = "kilim_demo_declared";
/// Recipes that have not drifted after so many rounds deserve to be told so.
const ROUNDS_MAX: u32 = 3;

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Demo {
    /// Use a running Kilim instead of one of its own.
    #[arg(long, value_name = "URI", value_parser = UriParser)]
    uri: Option<Uri>,

    #[command(flatten)]
    encryption: Encryption,

    /// How many clients work at the same time.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=64))]
    clients: u32,

    /// What each client does in a round.
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    operations: u32,

    /// Another seed gives another workload.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

const EXAMPLES: &str = "\
It starts a server of its own on a free port, with its data in a temporary directory, and leaves nothing behind.
With --uri it works in two databases of that server, kilim_demo_by_hand and kilim_demo_declared, and drops them.

Each client does the same things for the same seed; how they interleave differs from run to run, and with it the
figures of the recipes.";

impl Demo {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let started = Instant::now();
        let mut clean_up = CleanUp::prepare()?;
        // Declared before what it serves, so that it ends after it.
        let (uri, server) = match &self.uri {
            Some(uri) => (self.encryption.on(&uri.server()), None),
            None => {
                let server = OwnServer::start(&mut clean_up)?;
                (server.uri.clone(), Some(server))
            }
        };
        let result = self.show(&uri, &mut clean_up);
        if let Some(server) = server {
            server.stop()?;
        }
        clean_up.finish()?;
        let fine = result?;
        say!("\n{:.1} s, and nothing is left behind.", started.elapsed().as_secs_f64())?;
        Ok(if fine { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// Whether all that was declared is true.
    fn show(&self, uri: &Uri, clean_up: &mut CleanUp) -> Result<bool> {
        let mut client = Client::open(uri).with_context(|| format!("no server answers at {uri}"))?;
        client.run(BY_HAND, doc! {"listPatterns": 1}).map_err(explained)?;
        for database in [BY_HAND, DECLARED] {
            let found = client.all(database, doc! {"listCollections": 1, "nameOnly": true})?;
            ensure!(found.is_empty(), "{uri} has a database {database}: drop it, it is in the way");
            clean_up.database(uri, database);
        }
        let workload = Workload {
            uri: uri.clone(),
            clients: self.clients,
            operations: self.operations,
            seed: self.seed,
        };
        say!(
            "A shop with {} customers and {} products. {} clients write reviews and orders,\n\
             edit and delete reviews, rename customers; now and then one dies between two\n\
             writes.\n",
            shop::CUSTOMERS,
            shop::PRODUCTS,
            self.clients
        )?;

        shop::load(&mut client, BY_HAND)?;
        shop::load(&mut client, DECLARED)?;
        shop::declare(&mut client, DECLARED)?;
        if Truth::of(&mut client, BY_HAND)?.wrong() + Truth::of(&mut client, DECLARED)?.wrong() > 0 {
            bail!("the shop is wrong before anything was done");
        }

        let mut rounds = 0;
        let by_hand = loop {
            rounds += 1;
            let note = self.round(&workload, Keeping::ByHand, rounds)?;
            say!("{note}")?;
            let truth = Truth::of(&mut client, BY_HAND)?;
            if truth.all_drifted() || rounds == ROUNDS_MAX {
                break truth;
            }
        };
        for round in 1..=rounds {
            say!("{}", self.round(&workload, Keeping::Declared, round)?)?;
        }
        let declared = Truth::of(&mut client, DECLARED)?;
        say!()?;
        report::side_by_side(&by_hand, &declared)?;

        say!()?;
        let verified = report::verified(&mut client, DECLARED)?;
        say!()?;
        let catalogue = catalogue::show(&mut client)?;
        let attributes = attributes::show(&mut client)?;
        let tree = tree::show(&mut client, uri, self.clients)?;
        let celebrity = celebrity::show(&mut client)?;
        let versions = versions::show(&mut client, uri)?;
        let sensors = sensors::show(&mut client)?;
        let started = Instant::now();
        shop::declare(&mut client, BY_HAND)?;
        let healed = Truth::of(&mut client, BY_HAND)?;
        say!(
            "Declared over the shop that was kept by hand: {} wrong after {:.1} s.",
            grouped(healed.wrong()),
            started.elapsed().as_secs_f64()
        )?;
        Ok(declared.wrong() == 0
            && healed.wrong() == 0
            && verified
            && catalogue
            && attributes
            && tree
            && celebrity
            && versions
            && sensors)
    }

    fn round(&self, workload: &Workload, keeping: Keeping, round: u32) -> Result<String> {
        let label = match keeping {
            Keeping::ByHand => "by hand",
            Keeping::Declared => "declared",
        };
        let total = i64::from(self.clients) * i64::from(self.operations);
        let started = Instant::now();
        let done = workload::Done::default();
        let mut progress = Progress::new(label);
        let told =
            progress.during(|| Some((done.operations(), total)), || workload.run(keeping, round, &done))?;
        Ok(format!(
            "{label:<9} {} operations in {:.1} s: {} commands, {} clients died",
            grouped(total),
            started.elapsed().as_secs_f64(),
            grouped(told.commands),
            grouped(told.deaths),
        ))
    }
}

/// A server in this process.
struct OwnServer {
    uri: Uri,
    engine: std::sync::Arc<Engine>,
    server: kilim_server::Server<Commands>,
}

impl OwnServer {
    fn start(clean_up: &mut CleanUp) -> Result<OwnServer> {
        let data = clean_up.directory()?;
        let listener = Listener::bind(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0), Protection::default())?;
        let options = EngineOptions {
            data: Some(data),
            durability: kilim_engine::Durability::Durable,
            storage: kilim_engine::StorageOptions::default(),
            test_commands: false,
        };
        let engine = Engine::open(options).context("cannot open a database in a temporary directory")?;
        let address = listener.address();
        let server = listener.serve(
            Commands { engine: engine.clone(), access: std::sync::Arc::default() },
            Limits::default(),
        )?;
        let uri = Uri {
            host: address.ip().to_string(),
            port: address.port(),
            database: None,
            login: None,
            tls: None,
        };
        Ok(OwnServer { uri, engine, server })
    }

    fn stop(mut self) -> Result<()> {
        self.server.stop();
        self.engine.close().context("cannot close the database")
    }
}
