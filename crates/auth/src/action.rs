//! What a privilege allows: actions by MongoDB's names, and sets of them.
//!
//! An action is its place in [`ACTIONS`], so that a set is a few words and a check a bit. [`Action::named`] is evaluated when
//! the table of commands is compiled: a misspelt name does not compile.

/// The actions of mongod 6.0.5 and [those of Kilim](OWN_ACTIONS), in the order of their names, in which they are shown.
pub const ACTIONS: [&str; 147] = [
    "addShard",
    "advanceClusterTime",
    "allCollectionStats",
    "anyAction",
    "appendOplogNote",
    "applicationMessage",
    "applyOps",
    "auditConfigure",
    "auditLogRotate",
    "authCheck",
    "authSchemaUpgrade",
    "authenticate",
    "bypassDocumentValidation",
    "bypassWriteBlockingMode",
    "changeCustomData",
    "changeOwnCustomData",
    "changeOwnPassword",
    "changePassword",
    "changeStream",
    "checkFreeMonitoringStatus",
    "cleanupOrphaned",
    "clearJumboFlag",
    "closeAllDatabases",
    "collMod",
    "collStats",
    "compact",
    "compactStructuredEncryptionData",
    "connPoolStats",
    "connPoolSync",
    "convertToCapped",
    "cpuProfiler",
    "createCollection",
    "createDatabase",
    "createIndex",
    "createRole",
    "createUser",
    "dbCheck",
    "dbHash",
    "dbStats",
    "dropAllRolesFromDatabase",
    "dropAllUsersFromDatabase",
    "dropCollection",
    "dropConnections",
    "dropDatabase",
    "dropIndex",
    "dropRole",
    "dropUser",
    "emptycapped",
    "enableProfiler",
    "enableSharding",
    "exportCollection",
    "find",
    "flushRouterConfig",
    "forceUUID",
    "fsync",
    "getClusterParameter",
    "getCmdLineOpts",
    "getDatabaseVersion",
    "getDefaultRWConcern",
    "getLog",
    "getParameter",
    "getShardMap",
    "getShardVersion",
    "grantPrivilegesToRole",
    "grantRole",
    "grantRolesToRole",
    "grantRolesToUser",
    "hostInfo",
    "impersonate",
    "importCollection",
    "indexStats",
    "inprog",
    "insert",
    "internal",
    "invalidateUserCache",
    "kilimBackup",
    "killAnyCursor",
    "killAnySession",
    "killCursors",
    "killop",
    "listCachedAndActiveUsers",
    "listCollections",
    "listCursors",
    "listDatabases",
    "listIndexes",
    "listPatterns",
    "listSessions",
    "listShards",
    "logRotate",
    "moveChunk",
    "netstat",
    "oidReset",
    "operationMetrics",
    "pattern",
    "planCacheIndexFilter",
    "planCacheRead",
    "planCacheWrite",
    "reIndex",
    "refineCollectionShardKey",
    "remove",
    "removeShard",
    "renameCollection",
    "renameCollectionSameDB",
    "repairDatabase",
    "replSetConfigure",
    "replSetGetConfig",
    "replSetGetStatus",
    "replSetHeartbeat",
    "replSetReconfig",
    "replSetResizeOplog",
    "replSetStateChange",
    "reshardCollection",
    "resync",
    "revokePrivilegesFromRole",
    "revokeRole",
    "revokeRolesFromRole",
    "revokeRolesFromUser",
    "rotateCertificates",
    "runAsLessPrivilegedUser",
    "runTenantMigration",
    "serverStatus",
    "setAuthenticationRestriction",
    "setClusterParameter",
    "setDefaultRWConcern",
    "setFeatureCompatibilityVersion",
    "setFreeMonitoring",
    "setParameter",
    "setUserWriteBlockMode",
    "shardCollection",
    "shardedDataDistribution",
    "shardingState",
    "shutdown",
    "splitChunk",
    "splitVector",
    "storageDetails",
    "top",
    "touch",
    "trafficRecord",
    "unlock",
    "update",
    "updateRole",
    "updateUser",
    "useTenant",
    "useUUID",
    "validate",
    "viewRole",
    "viewUser",
];

/// Actions that MongoDB does not have: to declare patterns, to list them, and to copy the data on disk.
pub const OWN_ACTIONS: [&str; 3] = ["kilimBackup", "listPatterns", "pattern"];

const WORDS: usize = ACTIONS.len().div_ceil(64);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Action(u8);

impl Action {
    /// An action that the program itself names.
    pub const fn named(name: &str) -> Action {
        let mut place = 0;
        while place < ACTIONS.len() {
            if is_same(ACTIONS[place].as_bytes(), name.as_bytes()) {
                return Action(place as u8);
            }
            place += 1;
        }
        panic!("no action has this name")
    }

    /// An action that somebody else names.
    pub fn find(name: &str) -> Option<Action> {
        ACTIONS.iter().position(|known| *known == name).map(|place| Action(place as u8))
    }

    pub fn name(self) -> &'static str {
        ACTIONS[usize::from(self.0)]
    }
}

const fn is_same(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    let mut at = 0;
    while at < one.len() {
        if one[at] != other[at] {
            return false;
        }
        at += 1;
    }
    true
}

/// `anyAction`, which stands for all of them.
const ANY: Action = Action::named("anyAction");

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ActionSet([u64; WORDS]);

impl ActionSet {
    pub fn insert(&mut self, action: Action) {
        let (word, bit) = place(action);
        self.0[word] |= bit;
    }

    pub fn add(&mut self, other: ActionSet) {
        self.0.iter_mut().zip(other.0).for_each(|(word, other)| *word |= other);
    }

    pub fn subtract(&mut self, other: ActionSet) {
        self.0.iter_mut().zip(other.0).for_each(|(word, other)| *word &= !other);
    }

    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    /// Whether it has the action, by itself or as one of all.
    pub fn allows(&self, action: Action) -> bool {
        let has = |action| {
            let (word, bit) = place(action);
            self.0[word] & bit != 0
        };
        has(action) || has(ANY)
    }

    pub fn iter(&self) -> impl Iterator<Item = Action> {
        let set = *self;
        (0..ACTIONS.len() as u8).map(Action).filter(move |action| {
            let (word, bit) = place(*action);
            set.0[word] & bit != 0
        })
    }
}

fn place(action: Action) -> (usize, u64) {
    (usize::from(action.0) / 64, 1 << (action.0 % 64))
}

impl FromIterator<Action> for ActionSet {
    fn from_iter<I: IntoIterator<Item = Action>>(actions: I) -> ActionSet {
        let mut set = ActionSet::default();
        actions.into_iter().for_each(|action| set.insert(action));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_are_sorted_and_found_by_name() {
        assert!(ACTIONS.is_sorted());
        for name in ACTIONS {
            assert_eq!(Action::named(name).name(), name);
            assert_eq!(Action::find(name), Some(Action::named(name)));
        }
        assert_eq!(Action::find("fly"), None);
    }

    #[test]
    fn any_action_stands_for_all() {
        let any: ActionSet = [ANY].into_iter().collect();
        assert!(any.allows(Action::named("find")));
        let mut find: ActionSet = [Action::named("find"), Action::named("insert")].into_iter().collect();
        assert!(find.allows(Action::named("insert")) && !find.allows(Action::named("update")));
        find.subtract([Action::named("find")].into_iter().collect());
        assert_eq!(find.iter().map(Action::name).collect::<Vec<_>>(), ["insert"]);
    }
}
