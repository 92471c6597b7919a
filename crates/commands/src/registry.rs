//! The table of commands: name, its function, the privileges it needs, its help line, what it may be part of.

use std::collections::HashMap;
use std::sync::OnceLock;

use foldhash::fast::RandomState;
use kilim_bson::Document;
use kilim_error::Result;

use crate::access::asked;
use crate::command as c;
use crate::dispatch::Call;
use crate::privilege::{Needs, cluster, collection, database};

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
    /// Changes users or roles, whichever database it runs on.
    pub changes_access: bool,
    /// What whoever runs it must be allowed.
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
        changes_access: false,
        needs,
        run,
    }
}

impl CommandSpec {
    const fn alias(mut self, aliases: &'static [&'static str]) -> CommandSpec {
        self.aliases = aliases;
        self
    }

    /// Changes which collections, indexes and patterns there are, or what they are like.
    pub fn changes_schema(&self) -> bool {
        matches!(
            self.name,
            "create"
                | "drop"
                | "dropDatabase"
                | "createIndexes"
                | "dropIndexes"
                | "collMod"
                | "convertToCapped"
                | "cloneCollectionAsCapped"
                | "renameCollection"
                | "createPattern"
                | "modifyPattern"
                | "dropPattern"
                | "repairPattern"
                | "pausePattern"
                | "resumePattern"
                | "completeVersion"
                | "rollbackVersion"
        )
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

    const fn changes_access(mut self) -> CommandSpec {
        self.changes_access = true;
        self.writes = true;
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
    command("aggregate", c::aggregate::run, Needs::Asked(asked::aggregate), "run a pipeline")
        .writes()
        .transactional()
        .reads(ReadLevels::All)
        .stable(),
    command(
        "applyOps",
        c::apply_ops::run,
        Needs::Asked(asked::apply_ops),
        "apply logged changes of documents once more",
    )
    .writes(),
    command("buildInfo", c::build_info::run, Needs::Nothing, "which version this is").alias(&["buildinfo"]),
    command(
        "cloneCollectionAsCapped",
        c::clone_collection_as_capped::run,
        Needs::Asked(asked::clone_collection_as_capped),
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
        Needs::Asked(asked::coll_mod),
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
    command("create", c::create::run, Needs::Asked(asked::create), "make a collection")
        .transactional()
        .writes()
        .stable(),
    command(
        "createIndexes",
        c::create_indexes::run,
        Needs::all(&[collection("createIndex")]),
        "build indexes",
    )
    .transactional()
    .writes()
    .stable(),
    command(
        "completeVersion",
        c::complete_version::run,
        Needs::Asked(asked::change_pattern),
        "end a step between versions; the older is not shown any more",
    )
    .writes(),
    command(
        "createPattern",
        c::create_pattern::run,
        Needs::Asked(asked::create_pattern),
        "declare a pattern that writes keep true",
    )
    .writes(),
    command("currentOp", c::current_op::run, Needs::Asked(asked::current_op), "what runs now").admin(),
    command("dataSize", c::data_size::run, Needs::Asked(asked::data_size), "bytes of a collection")
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
    command("explain", c::explain::run, Needs::Asked(asked::explain), "how a command would run").stable(),
    command(
        "filemd5",
        c::filemd5::run,
        Needs::Asked(asked::filemd5),
        "the digest of a file that was kept in chunks",
    ),
    command("find", c::find::run, Needs::all(&[collection("find")]), "select documents")
        .transactional()
        .reads(ReadLevels::All)
        .stable(),
    command(
        "findAndModify",
        c::find_and_modify::run,
        Needs::Asked(asked::find_and_modify),
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
        c::get_default_rw_concern::get,
        Needs::all(&[cluster("getDefaultRWConcern")]),
        "default read and write concern",
    )
    .admin(),
    command("getLog", c::get_log::run, Needs::all(&[cluster("getLog")]), "warnings at start").admin(),
    command("getMore", c::get_more::run, Needs::Login, "the next batch of a cursor")
        .transactional()
        // Drivers repeat the level of a snapshot session. The cursor goes on reading at its own.
        .reads(ReadLevels::All)
        .stable(),
    command(
        "getClusterParameter",
        c::cluster_parameter::get,
        Needs::all(&[cluster("getClusterParameter")]),
        "settings that outlive the server",
    )
    .admin(),
    command("getParameter", c::get_parameter::run, Needs::all(&[cluster("getParameter")]), "settings")
        .admin(),
    command("hello", c::hello::run, Needs::Nothing, "what this server is").stable(),
    command("hostInfo", c::host_info::run, Needs::all(&[cluster("hostInfo")]), "what machine this is")
        .alias(&["hostinfo"]),
    command("insert", c::insert::run, Needs::Asked(asked::insert), "add documents")
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
        "killAllSessionsByPattern",
        c::kill_sessions::run_by_pattern,
        Needs::all(&[cluster("killAnySession")]),
        "end sessions by their users",
    ),
    command("killCursors", c::kill_cursors::run, Needs::Login, "close cursors").transactional().stable(),
    command("killOp", c::kill_op::run, Needs::Login, "interrupt a running command").admin(),
    command(
        "killPatternJob",
        c::pattern_jobs::run_kill,
        Needs::all(&[database("pattern")]),
        "end background work on a pattern",
    ),
    command("killSessions", c::kill_sessions::run, Needs::Login, "end sessions and what they run"),
    command(
        "listCollections",
        c::list_collections::run,
        Needs::Asked(asked::list_collections),
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
    command("listDatabases", c::list_databases::run, Needs::Asked(asked::list_databases), "all databases")
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
    command("lockInfo", c::lock_info::run, Needs::all(&[cluster("serverStatus")]), "who holds locks: nobody")
        .admin(),
    command("logRotate", c::log_rotate::run, Needs::all(&[cluster("logRotate")]), "begin a new log").admin(),
    command(
        "modifyPattern",
        c::modify_pattern::run,
        Needs::Asked(asked::modify_pattern),
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
        "moveNode",
        c::move_node::run,
        Needs::all(&[collection("update")]),
        "give a node of a tree another parent, or another place among its siblings",
    )
    .transactional()
    .retryable()
    .writes(),
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
        "forget which indexes queries may use",
    ),
    command(
        "planCacheListFilters",
        c::plan_cache::list_filters,
        Needs::all(&[collection("planCacheIndexFilter")]),
        "which indexes queries may use",
    ),
    command(
        "planCacheSetFilter",
        c::plan_cache::set_filter,
        Needs::all(&[collection("planCacheIndexFilter")]),
        "say which indexes queries of a shape may use",
    ),
    command(
        "reIndex",
        c::re_index::run,
        Needs::all(&[collection("reIndex")]),
        "refused, as on a replica set",
    ),
    command("refreshSessions", c::refresh_sessions::run, Needs::Login, "keep sessions alive").stable(),
    command(
        "renameCollection",
        c::rename_collection::run,
        Needs::Asked(asked::rename_collection),
        "rename a collection",
    )
    .admin()
    .writes(),
    command(
        "repairPattern",
        c::verify_pattern::run_repair,
        Needs::Asked(asked::change_pattern),
        "check a pattern and put right what is wrong",
    )
    .writes(),
    command(
        "replSetGetConfig",
        c::repl_set_get_config::run,
        Needs::all(&[cluster("replSetGetConfig")]),
        "the configuration of a set of one",
    )
    .admin(),
    command(
        "connPoolStats",
        c::connections_out::run_stats,
        Needs::all(&[cluster("connPoolStats")]),
        "connections to other members: none",
    ),
    command(
        "dropConnections",
        c::connections_out::run_drop,
        Needs::all(&[cluster("dropConnections")]),
        "end connections to other members: there are none",
    )
    .admin(),
    command("fsync", c::fsync::run, Needs::all(&[cluster("fsync")]), "put everything acknowledged on disk")
        .admin(),
    command("fsyncUnlock", c::fsync::unlock, Needs::all(&[cluster("unlock")]), "let writes go on").admin(),
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
        Needs::Asked(asked::change_pattern),
        "maintain a paused pattern again",
    )
    .writes(),
    command(
        "rollbackVersion",
        c::rollback_version::run,
        Needs::Asked(asked::change_pattern),
        "take a step between versions back",
    )
    .writes(),
    command(
        "serverStatus",
        c::server_status::run,
        Needs::all(&[cluster("serverStatus")]),
        "counters that monitoring reads",
    ),
    command(
        "setClusterParameter",
        c::cluster_parameter::set,
        Needs::all(&[cluster("setClusterParameter")]),
        "change a setting that outlives the server",
    )
    .admin()
    .writes(),
    command(
        "setParameter",
        c::set_parameter::run,
        Needs::all(&[cluster("setParameter")]),
        "change a setting",
    )
    .admin(),
    command(
        "setDefaultRWConcern",
        c::get_default_rw_concern::set,
        Needs::all(&[cluster("setDefaultRWConcern")]),
        "concerns of commands that name none",
    )
    .admin()
    .writes(),
    command(
        "setFeatureCompatibilityVersion",
        c::set_feature_compatibility_version::run,
        Needs::all(&[cluster("setFeatureCompatibilityVersion")]),
        "the version of the data: there is one",
    )
    .admin()
    .writes(),
    command(
        "setIndexCommitQuorum",
        c::set_index_commit_quorum::run,
        Needs::all(&[collection("createIndex")]),
        "how many members an index build waits for: there is one",
    )
    .writes(),
    command(
        "setUserWriteBlockMode",
        c::set_user_write_block_mode::run,
        Needs::all(&[cluster("setUserWriteBlockMode")]),
        "whether users may change data",
    ),
    command("startSession", c::start_session::run, Needs::Login, "begin a session"),
    command("update", c::update::run, Needs::Asked(asked::update), "change documents")
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
        Needs::Asked(asked::profile),
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
        "validateDBMetadata",
        c::validate_db_metadata::run,
        Needs::Asked(asked::validate_db_metadata),
        "what the stable API would refuse of indexes and views",
    )
    .stable(),
    command(
        "validate",
        c::validate::run,
        Needs::all(&[collection("validate")]),
        "recompute and compare a collection's indexes",
    ),
    command(
        "verifyPattern",
        c::verify_pattern::run,
        Needs::Asked(asked::verify_pattern),
        "compute again what a pattern maintains, and compare",
    ),
    command(
        "waitPattern",
        c::wait_pattern::run,
        Needs::all(&[database("listPatterns")]),
        "until a pattern is filled",
    ),
    command("authenticate", c::authenticate::run, Needs::Nothing, "log in by a certificate"),
    command("saslStart", c::sasl::start, Needs::Nothing, "begin to log in").stable(),
    command("saslContinue", c::sasl::go_on, Needs::Nothing, "go on with a login").stable(),
    command("logout", c::logout::run, Needs::Login, "end the login"),
    command("createUser", c::create_user::run, Needs::Asked(asked::create_user), "make a user")
        .changes_access(),
    command("updateUser", c::update_user::run, Needs::Asked(asked::update_user), "change a user")
        .changes_access(),
    command("dropUser", c::drop_user::run, Needs::all(&[database("dropUser")]), "remove a user")
        .changes_access(),
    command(
        "dropAllUsersFromDatabase",
        c::drop_user::run_all,
        Needs::all(&[database("dropUser")]),
        "remove the users of a database",
    )
    .changes_access(),
    command(
        "grantRolesToUser",
        c::user_roles::grant,
        Needs::Asked(asked::grant_roles),
        "give roles to a user",
    )
    .changes_access(),
    command(
        "revokeRolesFromUser",
        c::user_roles::revoke,
        Needs::Asked(asked::revoke_roles),
        "take roles from a user",
    )
    .changes_access(),
    command("usersInfo", c::users_info::run, Needs::Asked(asked::users_info), "users"),
    command("createRole", c::create_role::run, Needs::Asked(asked::create_role), "make a role")
        .changes_access(),
    command("updateRole", c::update_role::run, Needs::Asked(asked::update_role), "change a role")
        .changes_access(),
    command("dropRole", c::drop_role::run, Needs::all(&[database("dropRole")]), "remove a role")
        .changes_access(),
    command(
        "dropAllRolesFromDatabase",
        c::drop_role::run_all,
        Needs::all(&[database("dropRole")]),
        "remove the roles of a database",
    )
    .changes_access(),
    command(
        "grantPrivilegesToRole",
        c::role_privileges::grant,
        Needs::Asked(asked::grant_privileges),
        "add privileges to a role",
    )
    .changes_access(),
    command(
        "revokePrivilegesFromRole",
        c::role_privileges::revoke,
        Needs::Asked(asked::revoke_privileges),
        "take privileges from a role",
    )
    .changes_access(),
    command(
        "grantRolesToRole",
        c::role_roles::grant,
        Needs::Asked(asked::grant_roles),
        "have a role inherit from others",
    )
    .changes_access(),
    command(
        "revokeRolesFromRole",
        c::role_roles::revoke,
        Needs::Asked(asked::revoke_roles),
        "have a role inherit no more",
    )
    .changes_access(),
    command("rolesInfo", c::roles_info::run, Needs::Asked(asked::roles_info), "roles"),
    command(
        "invalidateUserCache",
        c::invalidate_user_cache::run,
        Needs::all(&[cluster("invalidateUserCache")]),
        "look at users and roles again",
    ),
    command(
        "_mergeAuthzCollections",
        c::merge_authz_collections::run,
        Needs::Asked(asked::merge_authz_collections),
        "take over the users and roles that a restore brings",
    )
    .admin()
    .changes_access(),
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
    use crate::privilege::Resource;

    #[test]
    fn what_answers_before_a_login_is_what_mongod_answers() {
        let open = COMMANDS.iter().filter(|spec| matches!(spec.needs, Needs::Nothing)).map(|spec| spec.name);
        let mut open: Vec<&str> = open.collect();
        open.sort_unstable();
        assert_eq!(
            open,
            [
                "authenticate",
                "buildInfo",
                "connectionStatus",
                "hello",
                "isMaster",
                "listCommands",
                "ping",
                "saslContinue",
                "saslStart",
                "whatsmyuri",
            ]
        );
    }

    #[test]
    fn commands_for_admin_alone_do_not_ask_for_a_database() {
        for spec in COMMANDS.iter().filter(|spec| spec.admin_only) {
            let Needs::Always(always) = spec.needs else { continue };
            assert!(
                always.iter().all(|privilege| privilege.resource != Resource::Database),
                "{} runs on admin, and needs a right on another database",
                spec.name
            );
        }
    }
}
