//! What somebody may do: the privileges of all his roles, and of the roles that these inherit.

use std::collections::HashMap;

use kilim_error::Result;

use crate::action::{Action, ActionSet};
use crate::builtin::builtin;
use crate::documents::RoleDocument;
use crate::name::RoleName;
use crate::privilege::{Privilege, Resource, merge};
use crate::restriction::Restriction;

/// What roles amount to, with all that they inherit.
#[derive(Debug, Clone, Default)]
pub struct Gathered {
    /// The roles themselves first, those that they inherit behind them.
    pub roles: Vec<RoleName>,
    pub privileges: Vec<Privilege>,
    /// One list a role that has restrictions; of each, one must hold.
    pub restrictions: Vec<Vec<Restriction>>,
}

/// Follows roles to all that they inherit. `read` gives a role that is no built-in one; one that is not there grants nothing.
pub fn gather(
    roles: &[RoleName],
    mut read: impl FnMut(&RoleName) -> Result<Option<RoleDocument>>,
) -> Result<Gathered> {
    let mut gathered = Gathered::default();
    for role in roles {
        if !gathered.roles.contains(role) {
            gathered.roles.push(role.clone());
        }
    }
    let mut at = 0;
    while at < gathered.roles.len() {
        let role = gathered.roles[at].clone();
        at += 1;
        if let Some(privileges) = builtin(&role) {
            merge(&mut gathered.privileges, privileges);
            continue;
        }
        let Some(document) = read(&role)? else { continue };
        merge(&mut gathered.privileges, document.privileges);
        if !document.restrictions.is_empty() {
            gathered.restrictions.push(document.restrictions);
        }
        for inherited in document.roles {
            if !gathered.roles.contains(&inherited) {
                gathered.roles.push(inherited);
            }
        }
    }
    Ok(gathered)
}

/// Privileges by the resources that they are asked for.
#[derive(Debug, Clone, Default)]
pub struct Rights {
    any: ActionSet,
    cluster: ActionSet,
    normal: ActionSet,
    databases: HashMap<String, ActionSet>,
    collections: HashMap<String, ActionSet>,
    exact: HashMap<String, HashMap<String, ActionSet>>,
    buckets: Vec<(String, String, ActionSet)>,
}

impl Rights {
    pub fn new(privileges: &[Privilege]) -> Rights {
        let mut rights = Rights::default();
        for Privilege { resource, actions } in privileges {
            match resource {
                Resource::Any => rights.any.add(*actions),
                Resource::Cluster => rights.cluster.add(*actions),
                Resource::Normal => rights.normal.add(*actions),
                Resource::Database(db) => rights.databases.entry(db.clone()).or_default().add(*actions),
                Resource::Collection(name) => {
                    rights.collections.entry(name.clone()).or_default().add(*actions);
                }
                Resource::Exact(db, name) => {
                    let of_database = rights.exact.entry(db.clone()).or_default();
                    of_database.entry(name.clone()).or_default().add(*actions);
                }
                Resource::Buckets { db, collection } => {
                    rights.buckets.push((db.clone(), collection.clone(), *actions));
                }
            }
        }
        rights
    }

    pub fn allows_on_cluster(&self, action: Action) -> bool {
        self.any.allows(action) || self.cluster.allows(action)
    }

    pub fn allows_on_database(&self, db: &str, action: Action) -> bool {
        self.any.allows(action)
            || (is_ordinary(db) && self.normal.allows(action))
            || self.databases.get(db).is_some_and(|actions| actions.allows(action))
    }

    pub fn allows_on_collection(&self, db: &str, collection: &str, action: Action) -> bool {
        if let Some(name) = collection.strip_prefix("system.buckets.") {
            let is_of = |(of_db, of_name, _): &&(String, String, ActionSet)| {
                (of_db.is_empty() || of_db == db) && (of_name.is_empty() || of_name == name)
            };
            if self.buckets.iter().filter(is_of).any(|(_, _, actions)| actions.allows(action)) {
                return true;
            }
        }
        let is_system = collection.starts_with("system.");
        (!is_system && self.allows_on_database(db, action))
            || self.any.allows(action)
            || self.collections.get(collection).is_some_and(|actions| actions.allows(action))
            || self.exact_of(db, collection).is_some_and(|actions| actions.allows(action))
    }

    fn exact_of(&self, db: &str, collection: &str) -> Option<&ActionSet> {
        self.exact.get(db)?.get(collection)
    }

    /// Whether it allows something in a database or in one of its collections: whether the database is listed.
    pub fn reaches_database(&self, db: &str) -> bool {
        const FIND: Action = Action::named("find");
        self.allows_on_database(db, FIND)
            || !self.databases.get(db).is_none_or(ActionSet::is_empty)
            || self.exact.get(db).is_some_and(|of_database| !of_database.is_empty())
            || (is_ordinary(db) && !self.normal.is_empty())
    }

    /// Whether it allows anything on a collection: whether the collection is listed.
    pub fn reaches_collection(&self, db: &str, collection: &str) -> bool {
        let some = |actions: Option<&ActionSet>| actions.is_some_and(|actions| !actions.is_empty());
        let is_system = collection.starts_with("system.");
        !self.any.is_empty()
            || some(self.collections.get(collection))
            || some(self.exact_of(db, collection))
            || (!is_system && (some(self.databases.get(db)) || (is_ordinary(db) && !self.normal.is_empty())))
    }
}

/// `local` and `config` are reached by those alone who are granted something on them by name.
fn is_ordinary(db: &str) -> bool {
    db != "local" && db != "config"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rights(roles: &[(&str, &str)]) -> Rights {
        let roles: Vec<RoleName> = roles.iter().map(|(role, db)| RoleName::new(role, db)).collect();
        Rights::new(&gather(&roles, |_| Ok(None)).unwrap().privileges)
    }

    #[test]
    fn read_reads_its_database_and_no_system_collection() {
        let rights = rights(&[("read", "shop")]);
        let find = |db, collection| rights.allows_on_collection(db, collection, Action::named("find"));
        assert!(find("shop", "orders") && find("shop", "system.js"));
        assert!(!find("shop", "system.profile") && !find("other", "orders"));
        assert!(!rights.allows_on_collection("shop", "orders", Action::named("insert")));
        assert!(rights.reaches_database("shop") && !rights.reaches_database("other"));
        assert!(
            rights.reaches_collection("shop", "orders") && !rights.reaches_collection("shop", "system.users")
        );
    }

    #[test]
    fn any_database_is_neither_local_nor_config() {
        let rights = rights(&[("readWriteAnyDatabase", "admin")]);
        let insert = Action::named("insert");
        assert!(rights.allows_on_collection("shop", "orders", insert));
        assert!(!rights.allows_on_collection("local", "x", insert));
        assert!(!rights.allows_on_collection("config", "x", insert));
        assert!(!rights.allows_on_collection("admin", "system.users", Action::named("find")));
        assert!(rights.allows_on_cluster(Action::named("listDatabases")));
    }

    #[test]
    fn roles_inherit_and_circles_end() {
        let find: ActionSet = [Action::named("find")].into_iter().collect();
        let gathered = gather(&[RoleName::new("a", "shop")], |role| {
            let next = if role.role == "a" { "b" } else { "a" };
            let resource = Resource::Exact("shop".to_owned(), role.role.clone());
            Ok(Some(RoleDocument {
                name: role.clone(),
                privileges: vec![Privilege { resource, actions: find }],
                roles: vec![RoleName::new(next, "shop")],
                restrictions: Vec::new(),
            }))
        });
        let gathered = gathered.unwrap();
        assert_eq!(gathered.roles.len(), 2);
        let rights = Rights::new(&gathered.privileges);
        assert!(rights.allows_on_collection("shop", "b", Action::named("find")));
        assert!(!rights.allows_on_collection("shop", "c", Action::named("find")));
    }
}
