//! `kilim serve`: opens the engine, listens, and ends in order when asked to.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use kilim_engine::metrics::Listening;
use kilim_engine::server_log::ProcessLog;
use kilim_engine::{Engine, EngineOptions, LogOptions, StorageOptions};
use kilim_server::{
    Access, Audit, Clients, Commands, Limits, Listener, MetricsEndpoint, Protection, ServerTls,
    ServerTlsOptions, Signals,
};
use signal_hook::consts::{SIGHUP, SIGUSR1, SIGUSR2};
use tracing::{error, info, warn};

use crate::allocator;
use crate::config::Config;
use crate::data_directory;
use crate::logging::{self, Log, LogFormat, LogLevel};
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

    /// Address to listen on. One that other machines reach needs --auth and --tls require.
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

    /// Writes are refused while the disk has less than this free [default: a fiftieth of the disk, 16MB to 512MB]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    reserve_bytes: Option<u64>,

    /// How long changes are kept for change streams: 168 is a week. 0 drops the change log, and there are no change streams
    #[arg(long, value_name = "HOURS", default_value_t = 168)]
    change_log_hours: u64,

    /// What the change log may take, no less than 1MB [default: a twentieth of the disk, 16MB to 1GB; 64MB with --ephemeral]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    change_log_size: Option<u64>,

    /// How long a stop may take to put everything in its final place, so that the next start has nothing to replay.
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    stop_within: u64,

    /// Connections beyond this are refused.
    #[arg(long, value_name = "N", default_value_t = Limits::default().connections_max, value_parser = at_least_one)]
    max_connections: usize,

    /// Allow an address that other machines reach without users or encryption: where the network itself is safe.
    #[arg(long)]
    insecure: bool,

    /// Whether connections are encrypted: never, where clients want it, or always.
    #[arg(long, value_enum, default_value_t = TlsMode::Off)]
    tls: TlsMode,

    /// The server's certificate as a PEM file, with its key unless --tls-key names that.
    #[arg(long, value_name = "FILE", required_if_eq_any = [("tls", "prefer"), ("tls", "require")])]
    tls_cert: Option<PathBuf>,

    /// The key of the certificate, where it is a file of its own.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,

    /// The authorities of clients' certificates: clients must then have one, by which users may log in (MONGODB-X509).
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_ca: Option<PathBuf>,

    /// With --tls-ca: whether clients without a certificate are served.
    #[arg(long, value_enum, default_value_t = TlsClients::Require, requires = "tls_ca")]
    tls_clients: TlsClients,

    /// With --tls-ca: the list of certificates that are revoked.
    #[arg(long, value_name = "FILE", requires = "tls_ca")]
    tls_crl: Option<PathBuf>,

    /// Have users log in, who may then do what their roles say.
    #[arg(long)]
    auth: bool,

    /// With --auth and no user yet: do not let somebody on this machine make the first one.
    #[arg(long, requires = "auth")]
    no_localhost_exception: bool,

    /// File to write who logged in, and who changed users, roles, collections and patterns: JSON lines, as mongod's.
    #[arg(long, value_name = "FILE")]
    audit: Option<PathBuf>,

    /// Enable commands that exist for tests, such as configureFailPoint.
    #[arg(long)]
    test_commands: bool,

    /// Figures for Prometheus at /metrics on this port, of the same address; 0 picks a free one.
    #[arg(long, value_name = "N")]
    metrics_port: Option<u16>,

    /// Commands that take this many milliseconds or more are told in the log.
    #[arg(long, value_name = "MS", default_value_t = 100)]
    slow_ms: u64,

    /// File for log lines, in place of standard error; SIGUSR1 has it opened anew.
    #[arg(long, value_name = "FILE")]
    log_file: Option<PathBuf>,

    /// How log lines look.
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    log_format: LogFormat,

    /// The least important log lines that are still written.
    #[arg(long, value_enum, default_value_t = LogLevel::Info)]
    log_level: LogLevel,

    /// YAML file of these options by their names, as in `port: 27017`; those of the command line go before. SIGHUP has it
    /// read anew.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum TlsMode {
    Off,
    /// Both kinds of clients are served, on one port.
    Prefer,
    /// Clients that do not encrypt are refused.
    Require,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum TlsClients {
    /// No: they need one.
    Require,
    /// Yes; a certificate that is shown must be good all the same.
    Allow,
}

/// Options of a configuration file that a running server can change.
const CHANGEABLE: [&str; 7] =
    ["log-level", "slow-ms", "tls-ca", "tls-cert", "tls-clients", "tls-crl", "tls-key"];

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
  kilim serve --bind 0.0.0.0 --auth --tls require --tls-cert server.pem
      Reachable from other machines, for those who log in. `kilim tls init` makes a certificate for a first try.
  kilim serve --config /etc/kilim.yaml
      Options from a file.

Signals: SIGTERM and SIGINT end it in order, SIGHUP has certificates and the configuration file read anew, SIGUSR1 has the
log and the audit log opened anew.";

/// A server that nobody may connect to is a mistake.
fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("a server needs room for one connection at least".to_owned()),
        Ok(number) => Ok(number),
        Err(error) => Err(format!("{error}")),
    }
}

impl Serve {
    /// `again` reads the configuration file anew.
    pub(crate) fn run(
        self,
        again: impl Fn() -> anyhow::Result<Serve> + Send + 'static,
    ) -> anyhow::Result<()> {
        self.check_logs_outside()?;
        // Dropped last, so that the last lines are written.
        let log = logging::start(self.log_format, self.log_level, self.log_file.as_deref());
        let log = Arc::new(log.context("cannot start the log")?);
        // Before anything is open, so that a signal at any time from here on ends in order.
        let mut signals = Signals::catch().context("cannot catch signals")?;
        let other_signals = OtherSignals::catch().context("cannot catch signals")?;
        if self.tls == TlsMode::Off && self.tls_cert.is_some() {
            bail!("--tls-cert is of no use without --tls require or --tls prefer");
        }
        let tls = self.tls_options().map(|options| ServerTls::read(&options, SystemTime::now())).transpose();
        let tls = tls.context("no encrypted connection is possible")?.map(Arc::new);
        // The port before the data: a second server is told about the port, and clients may knock
        // while the engine recovers.
        let protection =
            Protection { users: self.auth, encrypted: self.tls == TlsMode::Require, insecure: self.insecure };
        let listener =
            Listener::bind(SocketAddr::new(self.bind, self.port), protection)?.with_tls(tls.clone());
        let audit = self.audit.as_deref().map(Audit::open).transpose();
        let audit = audit.with_context(|| {
            format!(
                "cannot write to the audit log {}",
                self.audit.as_deref().unwrap_or(Path::new("")).display()
            )
        })?;

        let options = self.engine_options();
        let memory = self.memory_limits(options.storage.cache_bytes);
        memory.set();
        kilim_memory::when_tight(allocator::give_back_at_once);
        kilim_memory::when_resting(allocator::give_back_of_thread);
        let place = options.data.as_ref().map_or("memory".into(), |data| data.display().to_string());
        if let Some(data) = &options.data {
            data_directory::check(data)?;
        }
        let engine = Engine::open(options).with_context(|| format!("cannot open the database in {place}"))?;
        engine.metrics.set_slow_limit(Duration::from_millis(self.slow_ms));
        let process_log: Weak<Log> = Arc::downgrade(&log);
        engine.log.give(process_log);
        let metrics = match self.metrics_port {
            Some(port) => {
                let address = SocketAddr::new(self.bind, port);
                let endpoint = MetricsEndpoint::start(address, engine.clone(), tls.clone())
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
        self.warn_of_the_open();
        let access = match self.auth {
            true => Access::enforced(!self.no_localhost_exception),
            false => Access::open(),
        };
        let access = Arc::new(access.with_audit(audit));
        let service = Commands { engine: engine.clone(), access: access.clone() };
        let mut server = listener.serve(service, limits).context("cannot start the server")?;
        let config = self.config.as_deref().map(Config::read).transpose()?.unwrap_or_default();
        let running =
            Running { log: Arc::downgrade(&log), tls, access, engine: Arc::downgrade(&engine), config };
        other_signals.obey(running, again).context("cannot catch signals")?;

        info!(version = env!("CARGO_PKG_VERSION"), %address, data = place, "ready");
        log.note_ready();
        announce(address);

        let signal = signals.wait();
        info!(signal, "stopping");
        server.stop();
        drop(metrics);
        engine.close().context("cannot close the database")?;
        info!("stopped");
        Ok(())
    }

    /// Refuses logs inside a database's directory, this one's above all, which may not be there yet.
    fn check_logs_outside(&self) -> anyhow::Result<()> {
        for (file, option) in [(&self.log_file, "--log-file"), (&self.audit, "--audit")] {
            let Some(file) = file else { continue };
            data_directory::check_outside(file, option)?;
            let own = std::path::absolute(&self.data)?;
            if !self.ephemeral && std::path::absolute(file)?.starts_with(&own) {
                bail!(
                    "{option} names a file in the directory of the data, {}: name one outside of it",
                    own.display()
                );
            }
        }
        Ok(())
    }

    /// Tells whoever starts the server what others could do.
    fn warn_of_the_open(&self) {
        if self.bind.to_canonical().is_loopback() {
            return;
        }
        if !self.auth {
            warn!("anyone who reaches this server may read and change everything: --auth has users log in");
        }
        if self.tls != TlsMode::Require {
            warn!("whoever listens on the way reads what is sent: --tls require has everything encrypted");
        }
    }

    /// What is encrypted and by which files; `None` if nothing is.
    fn tls_options(&self) -> Option<ServerTlsOptions> {
        if self.tls == TlsMode::Off {
            return None;
        }
        Some(ServerTlsOptions {
            certificate: self.tls_cert.clone()?,
            key: self.tls_key.clone(),
            authorities: self.tls_ca.clone(),
            revoked: self.tls_crl.clone(),
            clients: match self.tls_clients {
                TlsClients::Require => Clients::Required,
                TlsClients::Allow => Clients::Allowed,
            },
            plain_allowed: self.tls == TlsMode::Prefer,
        })
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
            log: (self.change_log_hours > 0).then(|| LogOptions {
                age_max: Duration::from_secs(self.change_log_hours.saturating_mul(3600)),
                bytes_max: self.change_log_size,
            }),
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

/// What signals change in a running server.
struct Running {
    /// Not held, nor the engine: both end with the server, whatever this thread does.
    log: Weak<Log>,
    tls: Option<Arc<ServerTls>>,
    access: Arc<Access>,
    engine: Weak<Engine>,
    /// What the configuration file said last.
    config: Config,
}

impl Running {
    /// Reads the configuration file and the certificates anew. What is wrong is told, and all stays as it was.
    fn reload(&mut self, again: &impl Fn() -> anyhow::Result<Serve>) {
        let read = again().and_then(|serve| {
            let config = serve.config.as_deref().map(Config::read).transpose()?.unwrap_or_default();
            Ok((serve, config))
        });
        let (serve, config) = match read {
            Ok(read) => read,
            Err(error) => {
                error!(error = format!("{error:#}"), "the configuration cannot be read, all stays as it was");
                return;
            }
        };
        if let (Some(tls), Some(options)) = (&self.tls, serve.tls_options()) {
            if let Err(error) = tls.reload(&options, SystemTime::now()) {
                error!(%error, "the certificates cannot be read, all stays as it was");
                return;
            }
            info!(subject = tls.certificate().subject, "the certificate of connections to come");
        }
        let changed = self.config.differs_in(&config);
        let (now, later): (Vec<&str>, Vec<&str>) = changed.iter().partition(|name| CHANGEABLE.contains(name));
        if !later.is_empty() {
            warn!(options = later.join(", "), "these options change with the next start");
        }
        if !now.is_empty() {
            info!(options = now.join(", "), "options are changed");
        }
        if let Some(log) = self.log.upgrade() {
            log.set_level(serve.log_level);
        }
        if let Some(engine) = self.engine.upgrade() {
            engine.metrics.set_slow_limit(Duration::from_millis(serve.slow_ms));
        }
        self.config = config;
    }

    /// Writes the logs to new files of the same names.
    fn reopen(&self) {
        if let Some(log) = self.log.upgrade() {
            log.reopen();
        }
        info!(signal = "SIGUSR1", "logs are opened anew");
        if let Err(error) = self.access.reopen_audit() {
            error!(%error, "the audit log cannot be opened anew");
        }
    }
}

/// Signals that end other programs, and that mongod goes on after: a closed terminal, and what tools send to have logs
/// rotated and certificates read. They are caught before anything is open and obeyed when all is.
struct OtherSignals(signal_hook::iterator::Signals);

impl OtherSignals {
    fn catch() -> std::io::Result<OtherSignals> {
        signal_hook::iterator::Signals::new([SIGHUP, SIGUSR1, SIGUSR2]).map(OtherSignals)
    }

    fn obey(
        mut self,
        mut running: Running,
        again: impl Fn() -> anyhow::Result<Serve> + Send + 'static,
    ) -> std::io::Result<()> {
        let obey = move || {
            for signal in self.0.forever() {
                match signal {
                    SIGHUP => {
                        info!(signal = "SIGHUP", "certificates and configuration are read anew");
                        running.reload(&again);
                    }
                    SIGUSR1 => running.reopen(),
                    _ => info!(signal = "SIGUSR2", "ignored"),
                }
            }
        };
        std::thread::Builder::new().name("signals".to_owned()).spawn(obey)?;
        Ok(())
    }
}
