//! `kilim serve`: opens the engine, listens, and ends in order when asked to.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, ValueEnum};
use kilim_engine::metrics::Listening;
use kilim_engine::{Engine, EngineOptions, StorageOptions};
use kilim_server::{Commands, Limits, Listener, MetricsEndpoint, Signals};
use signal_hook::consts::{SIGHUP, SIGUSR1, SIGUSR2};
use tracing::{info, warn};

use crate::data_directory;
use crate::logging::{self, LogFormat, LogLevel};
use crate::output::say;
use crate::size::{parse_cache_size, parse_memory_size, parse_size};

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Serve {
    /// Directory of the data; made if it does not exist.
    #[arg(long, value_name = "DIR", default_value = "./kilim-data")]
    data: PathBuf,

    /// Port to listen on; 0 picks a free one.
    #[arg(long, value_name = "N", default_value_t = 27017)]
    port: u16,

    /// Address to listen on. One that other machines reach needs --insecure.
    #[arg(long, value_name = "ADDR", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    bind: IpAddr,

    /// When a write is acknowledged, unless its own write concern says otherwise.
    #[arg(long, value_enum, default_value_t = Durability::Durable)]
    durability: Durability,

    /// Keep everything in memory; it is gone when the server stops.
    #[arg(long, conflicts_with_all = ["data", "durability"])]
    ephemeral: bool,

    /// Memory that the server may take, cache included; operations that need more are refused [default: the machine's, or
    /// the container's]
    #[arg(long, value_name = "SIZE", value_parser = parse_memory_size)]
    memory_bytes: Option<u64>,

    /// Memory for the storage cache, such as 512MB or 2GB [default: a quarter of the memory]
    #[arg(long, value_name = "SIZE", value_parser = parse_cache_size)]
    cache_bytes: Option<u64>,

    /// Rows that are kept in memory before a checkpoint [default: an eighth of the cache, 4MB to 128MB]. Hidden: it is for
    /// tests, which have little data and want checkpoints all the same.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, hide = true)]
    checkpoint_bytes: Option<u64>,

    /// Writes are refused while the disk has less than this free [default: a fiftieth of the disk, 8MB to 512MB]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    reserve_bytes: Option<u64>,

    /// How long a stop may take to put everything in its final place, so that the next start has nothing to replay.
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    stop_within: u64,

    /// Connections beyond this are refused.
    #[arg(long, value_name = "N", default_value_t = Limits::default().connections_max, value_parser = at_least_one)]
    max_connections: usize,

    /// Allow an address that other machines reach, although there is no authentication yet.
    #[arg(long)]
    insecure: bool,

    /// Enable commands that exist for tests, such as configureFailPoint.
    #[arg(long)]
    test_commands: bool,

    /// Figures for Prometheus at /metrics on this port, of the same address; 0 picks a free one.
    #[arg(long, value_name = "N")]
    metrics_port: Option<u16>,

    /// Commands that take this many milliseconds or more are told in the log.
    #[arg(long, value_name = "MS", default_value_t = 100)]
    slow_ms: u64,

    /// How log lines on standard error look.
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    log_format: LogFormat,

    /// The least important log lines that are still written.
    #[arg(long, value_enum, default_value_t = LogLevel::Info)]
    log_level: LogLevel,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Durability {
    /// Once it is on disk.
    Durable,
    /// At once; it is on disk within 100 ms.
    Relaxed,
}

const EXAMPLES: &str = "\
Examples:
  kilim serve
      Data in ./kilim-data, on 127.0.0.1:27017.
  kilim serve --data /var/lib/kilim --cache-bytes 2GB
      Data elsewhere, with a larger cache.
  kilim serve --ephemeral --port 0
      In memory, on a free port, which the first line on standard output names: for tests.
  kilim serve --bind 0.0.0.0 --insecure --log-format json
      Reachable from other machines, in a network that is safe in itself.";

/// A server that nobody may connect to is a mistake.
fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("a server needs room for one connection at least".to_owned()),
        Ok(number) => Ok(number),
        Err(error) => Err(format!("{error}")),
    }
}

impl Serve {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        // Dropped last, so that the last lines are written.
        let _log = logging::start(self.log_format, self.log_level).context("cannot start the log")?;
        // Before anything is open, so that a signal at any time from here on ends in order.
        let mut signals = Signals::catch().context("cannot catch signals")?;
        ignore_other_signals().context("cannot catch signals")?;
        // The port before the data: a second server is told about the port, and clients may knock
        // while the engine recovers.
        let listener = Listener::bind(SocketAddr::new(self.bind, self.port), self.insecure)?;

        let options = self.engine_options();
        let memory = self.memory_limits(options.storage.cache_bytes);
        memory.set();
        let place = options.data.as_ref().map_or("memory".into(), |data| data.display().to_string());
        if let Some(data) = &options.data {
            data_directory::check(data)?;
        }
        let engine = Engine::open(options).with_context(|| format!("cannot open the database in {place}"))?;
        engine.metrics.set_slow_limit(Duration::from_millis(self.slow_ms));
        let metrics = match self.metrics_port {
            Some(port) => {
                let address = SocketAddr::new(self.bind, port);
                let endpoint = MetricsEndpoint::start(address, engine.clone())
                    .with_context(|| format!("cannot listen on {address} for metrics"))?;
                info!(address = %endpoint.address(), "metrics");
                Some(endpoint)
            }
            None => None,
        };
        let limits = Limits {
            connections_max: self.max_connections,
            message_bytes_max: Limits::default().message_bytes_max.min(memory.process_bytes / 4),
            ..Limits::default()
        };
        let limits = limits.within_reach();
        let address = listener.address();
        let listening = Listening { port: address.port(), connections_max: limits.connections_max };
        // Set once: this process has one engine and one listener.
        let _ = engine.metrics.server.set(listening);
        let mut server =
            listener.serve(Commands { engine: engine.clone() }, limits).context("cannot start the server")?;

        info!(version = env!("CARGO_PKG_VERSION"), %address, data = place, "ready");
        announce(address);

        let signal = signals.wait();
        info!(signal, "stopping");
        server.stop();
        drop(metrics);
        engine.close().context("cannot close the database")?;
        info!("stopped");
        Ok(())
    }

    fn memory_limits(&self, cache_bytes: u64) -> kilim_memory::Limits {
        let available = self.memory_bytes.unwrap_or_else(kilim_memory::available_bytes);
        kilim_memory::Limits::for_memory(available, cache_bytes.min(available))
    }

    fn storage_options(&self) -> StorageOptions {
        let mut options = StorageOptions {
            checkpoint_bytes: self.checkpoint_bytes,
            free_space_reserve_bytes: self.reserve_bytes,
            close_within: Duration::from_secs(self.stop_within),
            ..StorageOptions::default()
        };
        let quarter = self.memory_bytes.map(|bytes| bytes / 4);
        if let Some(bytes) = self.cache_bytes.or(quarter) {
            options.cache_bytes = bytes;
        }
        options
    }

    fn engine_options(&self) -> EngineOptions {
        EngineOptions {
            data: (!self.ephemeral).then(|| self.data.clone()),
            durability: match self.durability {
                Durability::Durable => kilim_engine::Durability::Durable,
                Durability::Relaxed => kilim_engine::Durability::Relaxed,
            },
            storage: self.storage_options(),
            test_commands: self.test_commands,
        }
    }
}

/// Says on standard output where the server is. It serves whether or not anybody can read that: the line may fail, and
/// it may block, which is why it has a thread of its own.
fn announce(address: SocketAddr) {
    let said = std::thread::Builder::new().name("ready".to_owned()).spawn(move || {
        if let Err(error) = say!("kilim is ready: mongodb://{address}") {
            warn!(%error, "the ready line is not written");
        }
    });
    if let Err(error) = said {
        warn!(%error, "the ready line is not written");
    }
}

/// Signals that end other programs, and that mongod goes on after: a closed terminal, and what tools send to have logs
/// rotated. The log is standard error, which is whoever reads it to rotate.
fn ignore_other_signals() -> std::io::Result<()> {
    let mut signals = signal_hook::iterator::Signals::new([SIGHUP, SIGUSR1, SIGUSR2])?;
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for signal in signals.forever() {
            let signal = match signal {
                SIGHUP => "SIGHUP",
                SIGUSR1 => "SIGUSR1",
                _ => "SIGUSR2",
            };
            info!(signal, "ignored");
        }
    })?;
    Ok(())
}
