//! The table of commands: name, what it may be part of, its function, its help line.

use std::collections::HashMap;
use std::sync::OnceLock;

use foldhash::fast::RandomState;
use kilim_bson::Document;
use kilim_error::Result;

use crate::command as c;
use crate::dispatch::Call;

pub struct CommandSpec {
    pub name: &'static str,
    pub aliases: &'static [&'static str],
    pub help: &'static str,
    pub admin_only: bool,
    /// May run inside a multi-statement transaction.
    pub in_transaction: bool,
    /// May carry a transaction number of its own.
    pub retryable: bool,
    /// commitTransaction and abortTransaction: they take up the session themselves.
    pub ends_transaction: bool,
    /// Exists with `--test-commands` only.
    pub test_only: bool,
    /// Takes a write concern.
    pub writes: bool,
    pub reads: ReadLevels,
    /// Part of the stable API, version 1.
    pub stable: bool,
    pub run: fn(&mut Call<'_, '_>) -> Result<Document>,
}

/// The read concern levels that a command takes outside of transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadLevels {
    LocalOnly,
    AllButSnapshot,
    All,
}

const fn command(
    name: &'static str,
    run: fn(&mut Call<'_, '_>) -> Result<Document>,
    help: &'static str,
) -> CommandSpec {
    CommandSpec {
        name,
        aliases: &[],
        help,
        admin_only: false,
        in_transaction: false,
        retryable: false,
        ends_transaction: false,
        test_only: false,
        writes: false,
        reads: ReadLevels::LocalOnly,
        stable: false,
        run,
    }
}

impl CommandSpec {
    const fn alias(mut self, aliases: &'static [&'static str]) -> CommandSpec {
        self.aliases = aliases;
        self
    }

    const fn admin(mut self) -> CommandSpec {
        self.admin_only = true;
        self
    }

    const fn transactional(mut self) -> CommandSpec {
        self.in_transaction = true;
        self
    }

    const fn retryable(mut self) -> CommandSpec {
        self.retryable = true;
        self
    }

    const fn ends_transaction(mut self) -> CommandSpec {
        self.ends_transaction = true;
        self.in_transaction = true;
        self
    }

    const fn writes(mut self) -> CommandSpec {
        self.writes = true;
        self
    }

    const fn reads(mut self, levels: ReadLevels) -> CommandSpec {
        self.reads = levels;
        self
    }

    const fn stable(mut self) -> CommandSpec {
        self.stable = true;
        self
    }

    const fn test_only(mut self) -> CommandSpec {
        self.test_only = true;
        self
    }
}

pub static COMMANDS: &[CommandSpec] = &[
    command("abortTransaction", c::abort_transaction::run, "undo the open transaction")
        .admin()
        .ends_transaction()
        .writes()
        .stable(),
    command("aggregate", c::aggregate::run, "run a pipeline")
        .writes()
        .transactional()
        .reads(ReadLevels::All)
        .stable(),
    command("buildInfo", c::build_info::run, "which version this is").alias(&["buildinfo"]),
    command(
        "cloneCollectionAsCapped",
        c::clone_collection_as_capped::run,
        "copy a collection's newest documents into one of bounded size",
    )
    .writes(),
    command("convertToCapped", c::convert_to_capped::run, "give a collection a bounded size").writes(),
    command("collMod", c::coll_mod::run, "change an index without building it anew").writes().stable(),
    command("collStats", c::coll_stats::run, "sizes and counts of a collection").alias(&["collstats"]),
    command("commitTransaction", c::commit_transaction::run, "make the open transaction durable")
        .admin()
        .ends_transaction()
        .writes()
        .stable(),
    command("configureFailPoint", c::configure_fail_point::run, "make commands fail, for tests")
        .admin()
        .test_only(),
    command("connectionStatus", c::connection_status::run, "who is logged in"),
    command("count", c::count::run, "count documents").reads(ReadLevels::AllButSnapshot).stable(),
    command("create", c::create::run, "make a collection").transactional().writes().stable(),
    command("createIndexes", c::create_indexes::run, "build indexes").transactional().writes().stable(),
    command("createPattern", c::create_pattern::run, "declare a pattern that writes keep true").writes(),
    command("currentOp", c::current_op::run, "what runs now").admin(),
    command("dataSize", c::data_size::run, "bytes of a collection").alias(&["datasize"]),
    command("dbStats", c::db_stats::run, "sizes and counts of a database").alias(&["dbstats"]),
    command("delete", c::delete::run, "remove documents").transactional().retryable().writes().stable(),
    command("distinct", c::distinct::run, "the different values of a field")
        .transactional()
        .reads(ReadLevels::All),
    command("drop", c::drop::run, "drop a collection").writes().stable(),
    command("dropDatabase", c::drop_database::run, "drop a database").writes().stable(),
    command("dropIndexes", c::drop_indexes::run, "drop indexes").alias(&["deleteIndexes"]).writes().stable(),
    command("dropPattern", c::drop_pattern::run, "end a pattern").writes(),
    command("endSessions", c::end_sessions::run, "end sessions").stable(),
    command("explain", c::explain::run, "how a command would run").stable(),
    command("find", c::find::run, "select documents").transactional().reads(ReadLevels::All).stable(),
    command("findAndModify", c::find_and_modify::run, "change one document and return it")
        .alias(&["findandmodify"])
        .transactional()
        .retryable()
        .writes()
        .stable(),
    command("getCmdLineOpts", c::get_cmd_line_opts::run, "how the server was started").admin(),
    command("getDefaultRWConcern", c::get_default_rw_concern::run, "default read and write concern").admin(),
    command("getLog", c::get_log::run, "warnings at start").admin(),
    command("getMore", c::get_more::run, "the next batch of a cursor")
        .transactional()
        // Drivers repeat the level of a snapshot session. The cursor goes on reading at its own.
        .reads(ReadLevels::All)
        .stable(),
    command("getParameter", c::get_parameter::run, "settings").admin(),
    command("hello", c::hello::run, "what this server is").stable(),
    command("hostInfo", c::host_info::run, "what machine this is").alias(&["hostinfo"]),
    command("insert", c::insert::run, "add documents").transactional().retryable().writes().stable(),
    command("isMaster", c::hello::run_is_master, "what this server is").alias(&["ismaster"]),
    command("killAllSessions", c::kill_sessions::run_all, "end all sessions"),
    command("killCursors", c::kill_cursors::run, "close cursors").transactional().stable(),
    command("killOp", c::kill_op::run, "interrupt a running command").admin(),
    command("killPatternJob", c::pattern_jobs::run_kill, "end background work on a pattern"),
    command("killSessions", c::kill_sessions::run, "end sessions and what they run"),
    command("listCollections", c::list_collections::run, "the collections of a database").stable(),
    command("kilimBackup", c::kilim_backup::run, "hand out the data on disk as of one moment").admin(),
    command("listCommands", c::list_commands::run, "this table"),
    command("listDatabases", c::list_databases::run, "all databases").admin().stable(),
    command("listIndexes", c::list_indexes::run, "the indexes of a collection").stable(),
    command("listPatterns", c::list_patterns::run, "the patterns of a database or collection"),
    command("modifyPattern", c::modify_pattern::run, "change a pattern while it is in force").writes(),
    command("patternJobs", c::pattern_jobs::run, "background work on patterns"),
    command("pausePattern", c::pause_pattern::run, "leave a pattern's fields as they are").writes(),
    command("ping", c::ping::run, "is anybody there?").stable(),
    command("planCacheClear", c::plan_cache::clear, "forget which plans were chosen"),
    command("planCacheClearFilters", c::plan_cache::clear_filters, "there are no index filters to clear"),
    command("planCacheListFilters", c::plan_cache::list_filters, "there are no index filters to list"),
    command("planCacheSetFilter", c::plan_cache::set_filter, "refused: a hint does it, or hiding an index"),
    command("refreshSessions", c::refresh_sessions::run, "keep sessions alive").stable(),
    command("renameCollection", c::rename_collection::run, "rename a collection").admin().writes(),
    command("repairPattern", c::verify_pattern::run_repair, "check a pattern and put right what is wrong")
        .writes(),
    command("replSetGetStatus", c::repl_set_get_status::run, "a set of one, healthy").admin(),
    command("resumePattern", c::resume_pattern::run, "maintain a paused pattern again").writes(),
    command("serverStatus", c::server_status::run, "counters that monitoring reads"),
    command("setParameter", c::set_parameter::run, "change a setting").admin(),
    command("startSession", c::start_session::run, "begin a session"),
    command("update", c::update::run, "change documents").transactional().retryable().writes().stable(),
    command("compact", c::compact::run, "give unused space back").writes(),
    command("dbHash", c::db_hash::run, "digests of a database's collections").alias(&["dbhash"]),
    command("profile", c::profile::run, "which commands are written to system.profile"),
    command("top", c::top::run, "how often collections are used, and for how long").admin(),
    command("validate", c::validate::run, "recompute and compare a collection's indexes"),
    command("verifyPattern", c::verify_pattern::run, "compute again what a pattern maintains, and compare"),
    command("waitPattern", c::wait_pattern::run, "until a pattern is filled"),
    command("whatsmyuri", c::whats_my_uri::run, "the client's own address"),
];

/// A command's place in the table.
pub fn place(name: &str) -> Option<usize> {
    static BY_NAME: OnceLock<HashMap<&'static str, usize, RandomState>> = OnceLock::new();
    let by_name = BY_NAME.get_or_init(|| {
        let names = |(place, spec): (usize, &'static CommandSpec)| {
            std::iter::once(spec.name).chain(spec.aliases.iter().copied()).map(move |name| (name, place))
        };
        COMMANDS.iter().enumerate().flat_map(names).collect()
    });
    by_name.get(name).copied()
}
