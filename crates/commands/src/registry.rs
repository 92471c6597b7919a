//! The table of commands: name, its function, the privileges it needs, its help line, what it may be part of.

use std::collections::HashMap;
use std::sync::OnceLock;

use foldhash::fast::RandomState;
use kilim_bson::Document;
use kilim_error::Result;

use crate::command as c;
use crate::dispatch::Call;
use crate::privilege::{Needs, cluster, collection, database, other};

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
    /// What whoever runs it must be allowed. Not enforced yet.
    pub needs: Needs,
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
    needs: Needs,
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
        needs,
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
    command("abortTransaction", c::abort_transaction::run, Needs::Login, "undo the open transaction")
        .admin()
        .ends_transaction()
        .writes()
        .stable(),
    command(
        "aggregate",
        c::aggregate::run,
        Needs::Privileges {
            always: &[collection("find")],
            sometimes: &[
                other("find"),
                other("insert"),
                other("remove"),
                other("update"),
                other("bypassDocumentValidation"),
                collection("collStats"),
                collection("indexStats"),
                collection("planCacheRead"),
                cluster("inprog"),
                cluster("listSessions"),
            ],
        },
        "run a pipeline",
    )
    .writes()
    .transactional()
    .reads(ReadLevels::All)
    .stable(),
    command("buildInfo", c::build_info::run, Needs::Nothing, "which version this is").alias(&["buildinfo"]),
    command(
        "cloneCollectionAsCapped",
        c::clone_collection_as_capped::run,
        Needs::all(&[collection("find"), other("insert"), other("createIndex"), other("convertToCapped")]),
        "copy a collection's newest documents into one of bounded size",
    )
    .writes(),
    command(
        "convertToCapped",
        c::convert_to_capped::run,
        Needs::all(&[collection("convertToCapped")]),
        "give a collection a bounded size",
    )
    .writes(),
    command(
        "collMod",
        c::coll_mod::run,
        Needs::all(&[collection("collMod")]),
        "change an index without building it anew",
    )
    .writes()
    .stable(),
    command(
        "collStats",
        c::coll_stats::run,
        Needs::all(&[collection("collStats")]),
        "sizes and counts of a collection",
    )
    .alias(&["collstats"]),
    command(
        "commitTransaction",
        c::commit_transaction::run,
        Needs::Login,
        "make the open transaction durable",
    )
    .admin()
    .ends_transaction()
    .writes()
    .stable(),
    command(
        "configureFailPoint",
        c::configure_fail_point::run,
        Needs::Login,
        "make commands fail, for tests",
    )
    .admin()
    .test_only(),
    command("connectionStatus", c::connection_status::run, Needs::Nothing, "who is logged in"),
    command("count", c::count::run, Needs::all(&[collection("find")]), "count documents")
        .reads(ReadLevels::AllButSnapshot)
        .stable(),
    command("create", c::create::run, Needs::all(&[collection("createCollection")]), "make a collection")
        .transactional()
        .writes()
        .stable(),
    command(
        "createIndexes",
        c::create_indexes::run,
        Needs::Privileges {
            always: &[collection("createIndex")],
            sometimes: &[collection("createCollection")],
        },
        "build indexes",
    )
    .transactional()
    .writes()
    .stable(),
    command(
        "createPattern",
        c::create_pattern::run,
        Needs::all(&[collection("pattern")]),
        "declare a pattern that writes keep true",
    )
    .writes(),
    command("currentOp", c::current_op::run, Needs::all(&[cluster("inprog")]), "what runs now").admin(),
    command("dataSize", c::data_size::run, Needs::all(&[collection("find")]), "bytes of a collection")
        .alias(&["datasize"]),
    command(
        "dbStats",
        c::db_stats::run,
        Needs::all(&[database("dbStats")]),
        "sizes and counts of a database",
    )
    .alias(&["dbstats"]),
    command("delete", c::delete::run, Needs::all(&[collection("remove")]), "remove documents")
        .transactional()
        .retryable()
        .writes()
        .stable(),
    command(
        "distinct",
        c::distinct::run,
        Needs::all(&[collection("find")]),
        "the different values of a field",
    )
    .transactional()
    .reads(ReadLevels::All),
    command("drop", c::drop::run, Needs::all(&[collection("dropCollection")]), "drop a collection")
        .writes()
        .stable(),
    command(
        "dropDatabase",
        c::drop_database::run,
        Needs::all(&[database("dropDatabase")]),
        "drop a database",
    )
    .writes()
    .stable(),
    command("dropIndexes", c::drop_indexes::run, Needs::all(&[collection("dropIndex")]), "drop indexes")
        .alias(&["deleteIndexes"])
        .writes()
        .stable(),
    command("dropPattern", c::drop_pattern::run, Needs::all(&[collection("pattern")]), "end a pattern")
        .writes(),
    command("endSessions", c::end_sessions::run, Needs::Login, "end sessions").stable(),
    command(
        "explain",
        c::explain::run,
        Needs::Privileges {
            always: &[],
            sometimes: &[
                collection("find"),
                collection("remove"),
                collection("update"),
                collection("insert"),
            ],
        },
        "how a command would run",
    )
    .stable(),
    command("find", c::find::run, Needs::all(&[collection("find")]), "select documents")
        .transactional()
        .reads(ReadLevels::All)
        .stable(),
    command(
        "findAndModify",
        c::find_and_modify::run,
        Needs::Privileges {
            always: &[collection("find")],
            sometimes: &[
                collection("update"),
                collection("insert"),
                collection("remove"),
                collection("bypassDocumentValidation"),
            ],
        },
        "change one document and return it",
    )
    .alias(&["findandmodify"])
    .transactional()
    .retryable()
    .writes()
    .stable(),
    command(
        "getCmdLineOpts",
        c::get_cmd_line_opts::run,
        Needs::all(&[cluster("getCmdLineOpts")]),
        "how the server was started",
    )
    .admin(),
    command(
        "getDefaultRWConcern",
        c::get_default_rw_concern::run,
        Needs::all(&[cluster("getDefaultRWConcern")]),
        "default read and write concern",
    )
    .admin(),
    command("getLog", c::get_log::run, Needs::all(&[cluster("getLog")]), "warnings at start").admin(),
    command(
        "getMore",
        c::get_more::run,
        Needs::Privileges {
            always: &[],
            sometimes: &[collection("find"), database("listCollections"), collection("listIndexes")],
        },
        "the next batch of a cursor",
    )
    .transactional()
    // Drivers repeat the level of a snapshot session. The cursor goes on reading at its own.
    .reads(ReadLevels::All)
    .stable(),
    command("getParameter", c::get_parameter::run, Needs::all(&[cluster("getParameter")]), "settings")
        .admin(),
    command("hello", c::hello::run, Needs::Nothing, "what this server is").stable(),
    command("hostInfo", c::host_info::run, Needs::all(&[cluster("hostInfo")]), "what machine this is")
        .alias(&["hostinfo"]),
    command(
        "insert",
        c::insert::run,
        Needs::Privileges {
            always: &[collection("insert")],
            sometimes: &[collection("bypassDocumentValidation")],
        },
        "add documents",
    )
    .transactional()
    .retryable()
    .writes()
    .stable(),
    command("isMaster", c::hello::run_is_master, Needs::Nothing, "what this server is").alias(&["ismaster"]),
    command(
        "killAllSessions",
        c::kill_sessions::run_all,
        Needs::all(&[cluster("killAnySession")]),
        "end all sessions",
    ),
    command(
        "killCursors",
        c::kill_cursors::run,
        Needs::Privileges { always: &[], sometimes: &[cluster("killAnyCursor")] },
        "close cursors",
    )
    .transactional()
    .stable(),
    command(
        "killOp",
        c::kill_op::run,
        Needs::Privileges { always: &[], sometimes: &[cluster("killop")] },
        "interrupt a running command",
    )
    .admin(),
    command(
        "killPatternJob",
        c::pattern_jobs::run_kill,
        Needs::all(&[database("pattern")]),
        "end background work on a pattern",
    ),
    command(
        "killSessions",
        c::kill_sessions::run,
        Needs::Privileges { always: &[], sometimes: &[cluster("killAnySession")] },
        "end sessions and what they run",
    ),
    command(
        "listCollections",
        c::list_collections::run,
        Needs::all(&[database("listCollections")]),
        "the collections of a database",
    )
    .stable(),
    command(
        "kilimBackup",
        c::kilim_backup::run,
        Needs::all(&[cluster("kilimBackup")]),
        "hand out the data on disk as of one moment",
    )
    .admin(),
    command("listCommands", c::list_commands::run, Needs::Nothing, "this table"),
    command(
        "listDatabases",
        c::list_databases::run,
        Needs::Privileges { always: &[], sometimes: &[cluster("listDatabases")] },
        "all databases",
    )
    .admin()
    .stable(),
    command(
        "listIndexes",
        c::list_indexes::run,
        Needs::all(&[collection("listIndexes")]),
        "the indexes of a collection",
    )
    .stable(),
    command(
        "listPatterns",
        c::list_patterns::run,
        Needs::all(&[database("listPatterns")]),
        "the patterns of a database or collection",
    ),
    command(
        "modifyPattern",
        c::modify_pattern::run,
        Needs::all(&[collection("pattern")]),
        "change a pattern while it is in force",
    )
    .writes(),
    command(
        "patternJobs",
        c::pattern_jobs::run,
        Needs::all(&[database("listPatterns")]),
        "background work on patterns",
    ),
    command(
        "pausePattern",
        c::pause_pattern::run,
        Needs::all(&[collection("pattern")]),
        "leave a pattern's fields as they are",
    )
    .writes(),
    command("ping", c::ping::run, Needs::Nothing, "is anybody there?").stable(),
    command(
        "planCacheClear",
        c::plan_cache::clear,
        Needs::all(&[collection("planCacheWrite")]),
        "forget which plans were chosen",
    ),
    command(
        "planCacheClearFilters",
        c::plan_cache::clear_filters,
        Needs::all(&[collection("planCacheIndexFilter")]),
        "there are no index filters to clear",
    ),
    command(
        "planCacheListFilters",
        c::plan_cache::list_filters,
        Needs::all(&[collection("planCacheIndexFilter")]),
        "there are no index filters to list",
    ),
    command(
        "planCacheSetFilter",
        c::plan_cache::set_filter,
        Needs::all(&[collection("planCacheIndexFilter")]),
        "refused: a hint does it, or hiding an index",
    ),
    command("refreshSessions", c::refresh_sessions::run, Needs::Login, "keep sessions alive").stable(),
    command(
        "renameCollection",
        c::rename_collection::run,
        Needs::Privileges {
            always: &[
                collection("find"),
                collection("dropCollection"),
                other("insert"),
                other("createIndex"),
            ],
            sometimes: &[other("dropCollection")],
        },
        "rename a collection",
    )
    .admin()
    .writes(),
    command(
        "repairPattern",
        c::verify_pattern::run_repair,
        Needs::all(&[collection("pattern")]),
        "check a pattern and put right what is wrong",
    )
    .writes(),
    command(
        "replSetGetStatus",
        c::repl_set_get_status::run,
        Needs::all(&[cluster("replSetGetStatus")]),
        "a set of one, healthy",
    )
    .admin(),
    command(
        "resumePattern",
        c::resume_pattern::run,
        Needs::all(&[collection("pattern")]),
        "maintain a paused pattern again",
    )
    .writes(),
    command(
        "serverStatus",
        c::server_status::run,
        Needs::all(&[cluster("serverStatus")]),
        "counters that monitoring reads",
    ),
    command(
        "setParameter",
        c::set_parameter::run,
        Needs::all(&[cluster("setParameter")]),
        "change a setting",
    )
    .admin(),
    command("startSession", c::start_session::run, Needs::Login, "begin a session"),
    command(
        "update",
        c::update::run,
        Needs::Privileges {
            always: &[collection("update")],
            sometimes: &[collection("insert"), collection("bypassDocumentValidation")],
        },
        "change documents",
    )
    .transactional()
    .retryable()
    .writes()
    .stable(),
    command("compact", c::compact::run, Needs::all(&[collection("compact")]), "give unused space back")
        .writes(),
    command(
        "dbHash",
        c::db_hash::run,
        Needs::all(&[database("dbHash")]),
        "digests of a database's collections",
    )
    .alias(&["dbhash"]),
    command(
        "profile",
        c::profile::run,
        Needs::all(&[database("enableProfiler")]),
        "which commands are written to system.profile",
    ),
    command(
        "top",
        c::top::run,
        Needs::all(&[cluster("top")]),
        "how often collections are used, and for how long",
    )
    .admin(),
    command(
        "validate",
        c::validate::run,
        Needs::all(&[collection("validate")]),
        "recompute and compare a collection's indexes",
    ),
    command(
        "verifyPattern",
        c::verify_pattern::run,
        Needs::all(&[collection("find")]),
        "compute again what a pattern maintains, and compare",
    ),
    command(
        "waitPattern",
        c::wait_pattern::run,
        Needs::all(&[database("listPatterns")]),
        "until a pattern is filled",
    ),
    command("whatsmyuri", c::whats_my_uri::run, Needs::Nothing, "the client's own address"),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::privilege::{OWN_ACTIONS, Resource};

    /// The actions of MongoDB's `action_type.idl` that commands of the table need.
    const ACTIONS: &[&str] = &[
        "bypassDocumentValidation",
        "collMod",
        "collStats",
        "compact",
        "convertToCapped",
        "createCollection",
        "createIndex",
        "dbHash",
        "dbStats",
        "dropCollection",
        "dropDatabase",
        "dropIndex",
        "enableProfiler",
        "find",
        "getCmdLineOpts",
        "getDefaultRWConcern",
        "getLog",
        "getParameter",
        "hostInfo",
        "indexStats",
        "inprog",
        "insert",
        "killAnyCursor",
        "killAnySession",
        "killop",
        "listCollections",
        "listDatabases",
        "listIndexes",
        "listSessions",
        "planCacheIndexFilter",
        "planCacheRead",
        "planCacheWrite",
        "remove",
        "replSetGetStatus",
        "serverStatus",
        "setParameter",
        "top",
        "update",
        "validate",
    ];

    #[test]
    fn every_command_says_which_privileges_it_needs() {
        let mut unused: Vec<&str> = ACTIONS.iter().chain(OWN_ACTIONS).copied().collect();
        for spec in COMMANDS {
            let Needs::Privileges { always, sometimes } = spec.needs else { continue };
            assert!(!always.is_empty() || !sometimes.is_empty(), "{} needs something", spec.name);
            for privilege in always.iter().chain(sometimes) {
                let known = ACTIONS.contains(&privilege.action) || OWN_ACTIONS.contains(&privilege.action);
                assert!(known, "{} needs '{}', which is no action", spec.name, privilege.action);
                unused.retain(|action| *action != privilege.action);
            }
        }
        assert!(unused.is_empty(), "no command needs {unused:?}");
    }

    #[test]
    fn what_answers_before_a_login_is_what_mongod_answers() {
        let open = COMMANDS.iter().filter(|spec| spec.needs == Needs::Nothing).map(|spec| spec.name);
        assert_eq!(
            open.collect::<Vec<_>>(),
            ["buildInfo", "connectionStatus", "hello", "isMaster", "listCommands", "ping", "whatsmyuri"]
        );
    }

    #[test]
    fn commands_for_admin_alone_do_not_ask_for_a_database() {
        for spec in COMMANDS.iter().filter(|spec| spec.admin_only) {
            let Needs::Privileges { always, .. } = spec.needs else { continue };
            assert!(
                always.iter().all(|privilege| privilege.resource != Resource::Database),
                "{} runs on admin, and needs a right on another database",
                spec.name
            );
        }
    }
}
